use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Extend, Line, Mode, Release};
use leasehold::{Error, Holder, Key, LockId, Steal, Timestamp, Ttl};

use super::{History, HistoryOptions, What};
use crate::Harness;

/// One of those who fight for the keys.
pub(super) struct Client {
    pub(super) store: Arc<dyn Backend>,
    pub(super) harness: Arc<dyn Harness>,
    pub(super) history: History,
    pub(super) options: HistoryOptions,
    /// Whether the store has lines and all modes.
    pub(super) lines: bool,
    pub(super) until: Timestamp,
}

/// One lock of a client: its names in the history, and until when the client counts on it.
struct Held {
    key: Key,
    id: LockId,
    deadline: u64,
}

/// What came of an acquire.
enum Outcome {
    Granted(Held),
    Refused,
    Queued,
}

impl Client {
    pub(super) async fn run(self, number: usize) -> Result<(), Error> {
        // Two clients of each name, so that some steals succeed.
        let holder = Holder::new(&format!("client-{}", number / 2))?;
        while self.harness.now() < self.until {
            let number = fastrand::usize(..self.options.keys);
            let key = self.harness.key(&format!("history-{number}"));
            if percent(self.options.forced) {
                self.history.record(key.as_str(), "force", What::ForceSent);
                self.store.force_release(&key, None).await?;
                self.history.record(key.as_str(), "force", What::ForceAnswered);
            }
            match self.contend(self.wanted(key, number)?.with_holder(holder.clone())).await? {
                Some(_) if percent(self.options.abandoned) => {}
                Some(held) => self.hold(held).await?,
                None => self.pause(3).await,
            }
        }
        Ok(())
    }

    /// What is asked for of the key with this number.
    fn wanted(&self, key: Key, number: usize) -> Result<AcquireRequest, Error> {
        let request = AcquireRequest::new(key, LockId::random()?, self.ttl()?);
        if !self.lines {
            return Ok(request.with_steal(self.steal()));
        }
        let mode = match number % 3 {
            1 if percent(70) => Mode::Shared,
            2 if percent(90) => NonZeroU16::new(fastrand::u16(2..4)).map_or(Mode::Exclusive, |of| Mode::Permit { of }),
            _ => Mode::Exclusive,
        };
        Ok(if percent(self.options.joins) {
            let lease = fastrand::choice(&self.options.leases).copied().unwrap_or(9000);
            request.with_line(Line::Join { lease: Ttl::from_millis(lease)? })
        } else if fastrand::bool() {
            request.with_line(Line::Heed)
        } else {
            request.with_steal(self.steal())
        }
        .with_mode(mode))
    }

    fn steal(&self) -> Steal {
        if percent(self.options.steals) { Steal::NEVER.with_same_holder() } else { Steal::NEVER }
    }

    /// Asks once, or for as long as it has a place in line and is patient.
    async fn contend(&self, request: AcquireRequest) -> Result<Option<Held>, Error> {
        let (mode, obeys_line) = (request.mode, request.line != Line::Ignore);
        if mode != Mode::Exclusive || obeys_line {
            self.record(&request.key, &request.lock_id, What::Wanted { mode, obeys_line });
        }
        for _ in 0..fastrand::u32(1..100) {
            match self.ask(&request).await? {
                Outcome::Granted(held) => return Ok(Some(held)),
                Outcome::Refused => return Ok(None),
                Outcome::Queued => self.pause(10).await,
            }
        }
        // Some leave without a word.
        if !percent(self.options.abandoned) {
            self.record(&request.key, &request.lock_id, What::ReleaseSent);
            self.store.release(&request.lock_id).await?;
            self.record(&request.key, &request.lock_id, What::ReleaseAbsent);
        }
        Ok(None)
    }

    async fn ask(&self, request: &AcquireRequest) -> Result<Outcome, Error> {
        let deadline = self.deadline(request.ttl);
        let held = Held { key: request.key.clone(), id: request.lock_id, deadline };
        let record = |what| self.record(&held.key, &held.id, what);
        let until = match request.line {
            Line::Join { lease } => Some(self.deadline(lease)),
            _ => None,
        };
        record(What::AcquireSent { may_steal: request.steal.is_possible() });
        match (self.store.acquire(request).await?, until) {
            (Acquire::Granted(grant), _) => {
                if let Some(slot) = grant.slot {
                    record(What::Slot { slot });
                }
                record(What::Granted { fence: grant.fence.get(), deadline });
                Ok(Outcome::Granted(held))
            }
            (Acquire::Held(contention), Some(until)) if contention.place.is_some() => {
                record(What::Queued { until });
                Ok(Outcome::Queued)
            }
            // Whatever else it may be, it is no grant.
            _ => {
                record(What::Held);
                Ok(Outcome::Refused)
            }
        }
    }

    /// Works for a while, extending now and then, and releases, even when the deadline has passed
    /// meanwhile.
    async fn hold(&self, mut held: Held) -> Result<(), Error> {
        for _ in 0..fastrand::u32(0..4) {
            self.pause(10).await;
            if self.history.now() < held.deadline && fastrand::bool() && !self.extend(&mut held).await? {
                return Ok(());
            }
        }
        for _ in 0..=u32::from(percent(10)) {
            self.record(&held.key, &held.id, What::ReleaseSent);
            let released = self.store.release(&held.id).await? == Release::Released;
            self.record(&held.key, &held.id, if released { What::Released } else { What::ReleaseAbsent });
        }
        Ok(())
    }

    async fn extend(&self, held: &mut Held) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        let deadline = self.deadline(ttl);
        self.record(&held.key, &held.id, What::ExtendSent { deadline });
        if let Extend::Extended { .. } = self.store.extend(&held.id, ttl).await? {
            self.record(&held.key, &held.id, What::Extended { deadline });
            held.deadline = deadline;
            return Ok(true);
        }
        self.record(&held.key, &held.id, What::ExtendAbsent);
        Ok(false)
    }

    /// Counts from before the request is sent, so it is never later than the store's.
    fn deadline(&self, ttl: Ttl) -> u64 {
        self.history.now().saturating_add(ttl.as_millis() * 1_000_000)
    }

    fn ttl(&self) -> Result<Ttl, Error> {
        Ttl::from_millis(fastrand::choice(&self.options.ttls).copied().unwrap_or(1000))
    }

    async fn pause(&self, up_to_millis: u64) {
        self.harness.pass(Duration::from_millis(fastrand::u64(1..=up_to_millis))).await;
    }

    fn record(&self, key: &Key, id: &LockId, what: What) {
        self.history.record(key.as_str(), &id.hash_id().to_string(), what);
    }
}

fn percent(of_a_hundred: u8) -> bool {
    fastrand::u8(..100) < of_a_hundred
}
