//! Clients that fight for a few keys at the store while something goes wrong, and start over where
//! they were cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::backend::{Acquire, AcquireRequest, Extend};
use leasehold::{Error, Key, LockId, Ttl};
use leasehold_conformance::history::History;
use test_support::{DEADLINE, connect, key};
use tokio::time::sleep;

use crate::recorder::Recorder;
use crate::support::assert_sound;

const KEYS: usize = 3;
const TTLS: [u64; 3] = [100, 300, 1500];

/// With less, next to nothing happened.
const FEWEST_GRANTS: usize = 50;

#[derive(Clone)]
pub(crate) struct Contest {
    pub(crate) history: History,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    over: AtomicBool,
    grants: AtomicUsize,
    errors: AtomicUsize,
}

impl Contest {
    pub(crate) fn new() -> Self {
        Self { history: History::new(), progress: Arc::default() }
    }

    pub(crate) fn keys() -> impl Iterator<Item = Key> {
        (0..KEYS).map(|number| key(&format!("contest-{number}")))
    }

    /// Runs clients of `url` while `trouble` does to `servers` what it likes, on a thread of its
    /// own. Calls must fail, but only with errors that pass. Afterwards every client gets each key
    /// once more, and the history is checked.
    pub(crate) async fn during<S: Send + Sync + 'static>(
        self,
        servers: S,
        url: &str,
        trouble: impl FnOnce(&Self, &S) + Send + 'static,
    ) {
        let stores = [connect(url).await, connect(url).await, connect(url).await];
        let clients: Vec<_> = stores
            .iter()
            .chain(&stores)
            .map(|store| {
                let store = Recorder::new(store.clone(), &self.history);
                tokio::spawn(Client { store, progress: self.progress.clone() }.run())
            })
            .collect();
        let (contest, servers) = (self.clone(), Arc::new(servers));
        let troubled = servers.clone();
        let trouble = tokio::task::spawn_blocking(move || trouble(&contest, &troubled)).await;
        self.progress.over.store(true, Ordering::Release);
        for client in clients {
            client.await.unwrap();
        }
        trouble.unwrap();
        drop(servers);
        let summary = assert_sound(&self.history.events());
        assert!(summary.granted >= FEWEST_GRANTS && summary.held > 0 && summary.extended > 0, "{summary:?}");
        assert_ne!(self.progress.errors.load(Ordering::Relaxed), 0, "no call ever met any trouble: {summary:?}");
    }

    /// Whether any call failed.
    pub(crate) fn has_met_trouble(&self) -> bool {
        self.progress.errors.load(Ordering::Relaxed) > 0
    }

    /// Blocks until so many more locks were granted: what went wrong is over, or has not begun.
    #[track_caller]
    pub(crate) fn await_grants(&self, more: usize) {
        await_more(&self.progress.grants, more, "more locks are granted");
    }

    /// Blocks until one more call has failed: what went wrong was felt.
    #[track_caller]
    pub(crate) fn await_error(&self) {
        await_more(&self.progress.errors, 1, "a call fails");
    }
}

#[track_caller]
fn await_more(count: &AtomicUsize, more: usize, what: &str) {
    let enough = count.load(Ordering::Relaxed) + more;
    test_servers::eventually(what, || count.load(Ordering::Relaxed) >= enough);
}

struct Client {
    store: Recorder,
    progress: Arc<Progress>,
}

impl Client {
    async fn run(self) {
        let keys: Vec<Key> = Contest::keys().collect();
        while !self.progress.over.load(Ordering::Acquire) {
            let key = keys[fastrand::usize(..keys.len())].clone();
            if let Some(id) = self.acquire(key).await {
                // A few are never released.
                if fastrand::u8(..100) >= 2 {
                    self.hold(id).await;
                }
            }
            pause(3).await;
        }
        for key in keys {
            let id = loop {
                match self.acquire(key.clone()).await {
                    Some(id) => break id,
                    None => pause(20).await,
                }
            };
            self.release(id).await;
        }
    }

    async fn acquire(&self, key: Key) -> Option<LockId> {
        let id = LockId::random().unwrap();
        let request = AcquireRequest::new(key, id, ttl());
        let answer = self.answer(|| self.store.acquire(&request)).await;
        if let Acquire::Held(_) = answer {
            return None;
        }
        self.progress.grants.fetch_add(1, Ordering::Relaxed);
        Some(id)
    }

    async fn hold(&self, id: LockId) {
        for _ in 0..fastrand::u32(0..3) {
            pause(5).await;
            // One that fails is not repeated, so that the release finds a lock whose expiry is not
            // known.
            match self.store.extend(&id, ttl()).await {
                Ok(Extend::Extended { .. }) => {}
                Ok(_) => return,
                Err(error) => {
                    self.note(&error);
                    break;
                }
            }
        }
        self.release(id).await;
    }

    async fn release(&self, id: LockId) {
        self.answer(|| self.store.release(&id)).await;
    }

    /// Asks until there is an answer.
    async fn answer<T, F: Future<Output = Result<T, Error>>>(&self, ask: impl Fn() -> F) -> T {
        let started = Instant::now();
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => self.note(&error),
            }
            assert!(started.elapsed() < DEADLINE, "never again an answer");
            pause(10).await;
        }
    }

    fn note(&self, error: &Error) {
        assert!(error.is_retryable(), "{error:?}");
        self.progress.errors.fetch_add(1, Ordering::Relaxed);
    }
}

fn ttl() -> Ttl {
    Ttl::from_millis(TTLS[fastrand::usize(..TTLS.len())]).unwrap()
}

async fn pause(up_to_millis: u64) {
    sleep(Duration::from_millis(fastrand::u64(1..=up_to_millis))).await;
}
