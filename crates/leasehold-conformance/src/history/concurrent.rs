use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Extend, Release};
use leasehold::{Error, Holder, Key, LockId, Steal, Timestamp, Ttl};

use super::{History, Summary, What, check};
use crate::Harness;

/// How the clients that fight for a few keys behave.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// For how long, by the store's clock.
    pub duration: Duration,
    /// The ttls to choose from, in milliseconds.
    pub ttls: Vec<u64>,
    /// Of a hundred locks, how many are never released.
    pub abandoned: u8,
    /// Of a hundred acquires, how many may steal from the same holder.
    pub steals: u8,
    /// Of a hundred rounds of a client, how many begin with a forced release.
    pub forced: u8,
}

impl HistoryOptions {
    /// For stores on a manual clock, where time costs nothing.
    pub fn manual_clock() -> Self {
        Self { duration: Duration::from_secs(60), ..Self::real_clock() }
    }

    /// For stores on a real clock.
    pub fn real_clock() -> Self {
        Self {
            clients: 6,
            keys: 2,
            duration: Duration::from_secs(6),
            ttls: vec![20, 200, 5000],
            abandoned: 4,
            steals: 2,
            forced: 1,
        }
    }
}

/// Lets several clients fight for a few keys through both handles, with locks that are extended,
/// abandoned, stolen and released by force, and checks what they saw.
///
/// # Errors
///
/// An error of the store, the violations found, or that next to nothing happened.
pub async fn concurrent(harness: Arc<dyn Harness>, options: &HistoryOptions) -> Result<Summary, String> {
    // The time of the history is the store's, so that deadlines follow a manual clock too. A real
    // clock may be set back; the history's must not be.
    let (clock, started) = (harness.clone(), harness.now());
    let highest = std::sync::atomic::AtomicU64::new(0);
    let history = History::with_clock(move || {
        let now = u64::try_from(clock.now().since(started).as_nanos()).unwrap_or(u64::MAX);
        highest.fetch_max(now, std::sync::atomic::Ordering::AcqRel).max(now)
    });
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let client = Client {
                store: if number % 2 == 0 { harness.backend() } else { harness.peer() },
                harness: harness.clone(),
                history: history.clone(),
                options: options.clone(),
                until: harness.now() + options.duration,
            };
            tokio::spawn(client.run(number))
        })
        .collect();
    for client in clients {
        let outcome = client.await.map_err(|failure| format!("a client failed: {failure}"))?;
        outcome.map_err(|error| format!("the store failed: {error:?}"))?;
    }
    let summary = check(&history.events()).map_err(|broken| {
        let shown: Vec<String> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
        format!("{} violations:\n{}", broken.len(), shown.join("\n"))
    })?;
    if summary.granted < 10 || summary.released < 5 || summary.held == 0 {
        return Err(format!("next to nothing happened: {summary:?}"));
    }
    Ok(summary)
}

struct Client {
    store: Arc<dyn Backend>,
    harness: Arc<dyn Harness>,
    history: History,
    options: HistoryOptions,
    until: Timestamp,
}

/// One lock of a client: its names in the history, and until when the client counts on it.
struct Held {
    key: Key,
    id: LockId,
    deadline: u64,
}

impl Client {
    async fn run(self, number: usize) -> Result<(), Error> {
        // Two clients of each name, so that some steals succeed.
        let holder = Holder::new(&format!("client-{}", number / 2))?;
        while self.harness.now() < self.until {
            let key = self.harness.key(&format!("history-{}", fastrand::usize(..self.options.keys)));
            if percent(self.options.forced) {
                self.history.record(key.as_str(), "force", What::ForceSent);
                self.store.force_release(&key).await?;
                self.history.record(key.as_str(), "force", What::ForceAnswered);
            }
            match self.acquire(key, &holder).await? {
                Some(_) if percent(self.options.abandoned) => {}
                Some(held) => self.hold(held).await?,
                None => self.pause(3).await,
            }
        }
        Ok(())
    }

    async fn acquire(&self, key: Key, holder: &Holder) -> Result<Option<Held>, Error> {
        let may_steal = percent(self.options.steals);
        let (id, ttl) = (LockId::random()?, self.ttl()?);
        let request = AcquireRequest::new(key.clone(), id, ttl).with_holder(holder.clone()).with_steal(if may_steal {
            Steal::NEVER.with_same_holder()
        } else {
            Steal::NEVER
        });
        let deadline = self.deadline(ttl);
        let held = Held { key, id, deadline };
        self.record(&held, What::AcquireSent { may_steal });
        match self.store.acquire(&request).await? {
            Acquire::Granted(grant) => {
                self.record(&held, What::Granted { fence: grant.fence.get(), deadline });
                Ok(Some(held))
            }
            // Whatever else it may be, it is no grant.
            _ => {
                self.record(&held, What::Held);
                Ok(None)
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
            self.record(&held, What::ReleaseSent);
            let released = self.store.release(&held.id).await? == Release::Released;
            self.record(&held, if released { What::Released } else { What::ReleaseAbsent });
        }
        Ok(())
    }

    async fn extend(&self, held: &mut Held) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        let deadline = self.deadline(ttl);
        self.record(held, What::ExtendSent { deadline });
        if let Extend::Extended { .. } = self.store.extend(&held.id, ttl).await? {
            self.record(held, What::Extended { deadline });
            held.deadline = deadline;
            return Ok(true);
        }
        self.record(held, What::ExtendAbsent);
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

    fn record(&self, held: &Held, what: What) {
        self.history.record(held.key.as_str(), &held.id.hash_id().to_string(), what);
    }
}

fn percent(of_a_hundred: u8) -> bool {
    fastrand::u8(..100) < of_a_hundred
}
