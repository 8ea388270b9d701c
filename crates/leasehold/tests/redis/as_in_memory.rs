//! Whatever is asked, in whatever order, the answers are those of the store in memory.

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use leasehold::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Contention, Extend, Line, LookupBy, Mode, Release,
};
use leasehold::memory::Memory;
use leasehold::redis::Redis;
use leasehold::{Fence, Holder, Key, ListRequest, LockId, Steal};
use test_servers::Redis as Server;
use test_support::{id, key, ttl};

use crate::support::connect;

/// Enough that nothing is left to expire by itself.
const LONG: u64 = 60_000;

/// What is said of an id that another key has.
const ID_IN_USE: &str = "InvalidArgument";

/// Shorter than the lease of somebody who was called.
const IN_TIME: Duration = Duration::from_millis(1500);

struct Both {
    redis: Redis,
    memory: Memory,
    keys: Vec<Key>,
    ids: Vec<LockId>,
    /// The fences of both, in the order in which they were granted.
    fences: Vec<(Fence, Fence)>,
    said: Vec<String>,
}

impl Both {
    fn request(&self, random: &mut fastrand::Rng) -> AcquireRequest {
        let number = random.usize(..self.ids.len());
        let modes = [Mode::Exclusive, Mode::Shared, permit(1), permit(2), permit(3)];
        let line = match random.u8(..4) {
            0 => Line::Ignore,
            1 => Line::Heed,
            _ => Line::Join { lease: ttl(LONG) },
        };
        let steal = if random.u8(..6) == 0 { Steal::NEVER.with_same_holder() } else { Steal::NEVER };
        // An id is nearly always used for the same key.
        let of = if random.u8(..20) == 0 { random.usize(..) } else { number };
        AcquireRequest::new(self.keys[of % self.keys.len()].clone(), self.ids[number], ttl(LONG))
            .with_holder(Holder::new(&format!("holder-{}", random.u8(..3))).unwrap())
            .with_mode(modes[random.usize(..modes.len())])
            .with_line(line)
            .with_steal(steal)
    }

    async fn step(&mut self, random: &mut fastrand::Rng) {
        match random.u8(..10) {
            0..5 => {
                let request = self.request(random);
                self.say(shorten(&request));
                let answers = (self.redis.acquire(&request).await, self.memory.acquire(&request).await);
                let [redis, memory] = match answers {
                    (Ok(Acquire::Granted(redis)), Ok(Acquire::Granted(memory))) => {
                        self.fences.push((redis.fence, memory.fence));
                        [redis, memory].map(|grant| format!("granted {:?}", grant.slot))
                    }
                    (redis, memory) => [redis, memory].map(|answer| match answer {
                        Ok(Acquire::Held(contention)) => describe(&contention),
                        Err(error) => format!("{:?}", error.code()),
                        other => format!("granted {other:?}"),
                    }),
                };
                self.agree_on_refusal(&redis, &memory);
            }
            5..7 => {
                let id = self.ids[random.usize(..self.ids.len())];
                self.say(format!("release {}", id.expose()));
                let released = |answer| matches!(answer, Ok(Release::Released));
                let [redis, memory] = [self.redis.release(&id).await, self.memory.release(&id).await].map(released);
                self.agree(&redis, &memory);
            }
            7 => {
                let id = self.ids[random.usize(..self.ids.len())];
                let extended = |answer| matches!(answer, Ok(Extend::Extended { .. }));
                self.say(format!("extend {}", id.expose()));
                let [redis, memory] =
                    [self.redis.extend(&id, ttl(LONG)).await, self.memory.extend(&id, ttl(LONG)).await].map(extended);
                self.agree(&redis, &memory);
            }
            8 => {
                let key = self.keys[random.usize(..self.keys.len())].clone();
                let only = (random.bool() && !self.fences.is_empty())
                    .then(|| self.fences[random.usize(..self.fences.len())])
                    .unzip();
                self.say(format!("force_release {} {only:?}", key.as_str()));
                let redis = self.redis.force_release(&key, only.0).await.unwrap();
                let memory = self.memory.force_release(&key, only.1).await.unwrap();
                let ids = |records: Vec<leasehold::backend::Record>| -> Vec<_> {
                    records.into_iter().map(|record| (record.lock_id, record.mode, record.slot)).collect()
                };
                self.agree(&ids(redis), &ids(memory));
            }
            _ => {
                let mut requests: Vec<AcquireRequest> = Vec::new();
                for _ in 0..random.usize(1..4) {
                    let request = self.request(random);
                    let new = |other: &AcquireRequest| other.key != request.key && other.lock_id != request.lock_id;
                    if requests.iter().all(new) {
                        let line = if random.bool() { Line::Heed } else { Line::Ignore };
                        requests.push(request.with_line(line).with_steal(Steal::NEVER));
                    }
                }
                self.say(format!("all {:?}", requests.iter().map(shorten).collect::<Vec<_>>()));
                let answers = (self.redis.acquire_all(&requests).await, self.memory.acquire_all(&requests).await);
                let [redis, memory] = match answers {
                    (Ok(AcquireAll::Granted(redis)), Ok(AcquireAll::Granted(memory))) => {
                        self.fences
                            .extend(redis.iter().zip(&memory).map(|(redis, memory)| (redis.fence, memory.fence)));
                        [redis, memory].map(|grants| {
                            format!(
                                "granted {:?}",
                                grants.iter().map(|grant| (grant.lock_id, grant.slot)).collect::<Vec<_>>()
                            )
                        })
                    }
                    (redis, memory) => [redis, memory].map(|answer| match answer {
                        Ok(AcquireAll::Held { which, contention }) => format!("{which} {}", describe(&contention)),
                        Err(error) => format!("{:?}", error.code()),
                        other => format!("granted {other:?}"),
                    }),
                };
                self.agree_on_refusal(&redis, &memory);
            }
        }
        self.look().await;
    }

    /// All that can be seen is the same.
    async fn look(&mut self) {
        for key in self.keys.clone() {
            let mut seen = Vec::new();
            for store in [&self.redis as &dyn Backend, &self.memory] {
                let inspected = store.inspect(&key).await.unwrap();
                let holders: Vec<_> =
                    inspected.holders.iter().map(|r| (r.lock_id, r.mode, r.slot, r.holder.clone())).collect();
                let waiters: Vec<_> = inspected.waiters.iter().map(|w| (w.lock_id, w.mode, w.holder.clone())).collect();
                let oldest = store.lookup(LookupBy::Key(&key)).await.unwrap().map(|record| record.lock_id);
                seen.push((holders, waiters, oldest, store.is_locked(&key).await.unwrap()));
            }
            let memory = seen.pop();
            self.agree(&seen.pop(), &memory);
        }
        for id in self.ids.clone() {
            let by_id = LookupBy::Id(&id);
            let [redis, memory] = [self.redis.lookup(by_id).await.unwrap(), self.memory.lookup(by_id).await.unwrap()]
                .map(|found| found.map(|record| (record.key, record.lock_id, record.mode, record.slot)));
            self.agree(&redis, &memory);
        }
        let mut pages = Vec::new();
        for store in [&self.redis as &dyn Backend, &self.memory] {
            let page = store.list(&ListRequest::new("").with_page_size(1000)).await.unwrap();
            let mut records: Vec<_> =
                page.records.iter().map(|r| (r.key.clone(), r.lock_id.expose().to_owned())).collect();
            records.sort();
            pages.push((records, page.waiting));
        }
        let memory = pages.pop();
        self.agree(&pages.pop(), &memory);
    }

    fn say(&mut self, what: String) {
        self.said.push(what);
    }

    /// Which of two objections comes first is nobody's business.
    fn agree_on_refusal(&self, redis: &str, memory: &str) {
        let refused = |answer: &str| !answer.starts_with("granted");
        let in_use = redis == ID_IN_USE || memory == ID_IN_USE;
        if !(in_use && refused(redis) && refused(memory)) {
            self.agree(&redis, &memory);
        }
    }

    fn agree<T: PartialEq + std::fmt::Debug>(&self, redis: &T, memory: &T) {
        assert_eq!(redis, memory, "after {:#?}", self.said);
    }
}

fn shorten(request: &AcquireRequest) -> String {
    let AcquireRequest { key, lock_id, holder, steal, mode, line, .. } = request;
    format!("{} {} {holder} {mode:?} {line:?} {}", key.as_str(), lock_id.expose(), steal.is_possible())
}

fn permit(of: u16) -> Mode {
    Mode::Permit { of: NonZeroU16::new(of).unwrap() }
}

/// Times are left out but for whether it ends soon.
fn describe(held: &Contention) -> String {
    let soon = held.free_in() < Duration::from_millis(LONG / 2);
    let Contention { holder, mode, holders, place, .. } = held;
    format!("{holder:?} {mode:?} {holders} {place:?} {} {soon}", held.fence.is_some())
}

#[tokio::test]
async fn answers_are_those_of_the_store_in_memory() {
    let server = Server::start();
    for seed in 0..15 {
        let mut random = fastrand::Rng::with_seed(seed);
        server.cli(&["FLUSHALL"]);
        let mut both = Both {
            redis: connect(&server).await,
            memory: Memory::new(),
            keys: (0..3).map(|number| key(&format!("order/{number}"))).collect(),
            ids: (0..9).map(|_| id()).collect(),
            fences: Vec::new(),
            said: Vec::new(),
        };
        let begun = Instant::now();
        for _ in 0..60 {
            both.step(&mut random).await;
            if begun.elapsed() > IN_TIME {
                break;
            }
        }
    }
}
