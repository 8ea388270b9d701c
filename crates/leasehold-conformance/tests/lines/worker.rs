//! A process that wants the lock again and again: the test itself, started once more.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::{Locks, Retry};
use leasehold_conformance::history::What;

use crate::Store;
use crate::log::{Log, Wait, now};

/// Set to the URL of a store, it makes the test one of its own workers.
const URL: &str = "LEASEHOLD_LINES_URL";
/// The directory in which it works.
const PLACE: &str = "LEASEHOLD_LINES_PLACE";

/// How soon the lock of a killed worker is free, but for the tolerance.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// The lease of a place, short so that a test sees many of them end.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Worker(Child);

impl Worker {
    /// The test of this name in a process of its own.
    pub(crate) fn start(store: Store, test: &str, url: &str, place: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("{}::{test}", store.name)]);
        Self(command.env(URL, url).env(PLACE, place).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success(), "cannot send {name}");
    }

    /// Kills it as the kernel would.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.0.try_wait().unwrap().map(|status| status.success())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What this process has to work on, if it is a worker.
pub(crate) fn task() -> Option<(String, PathBuf)> {
    Some((std::env::var(URL).ok()?, std::env::var(PLACE).ok()?.into()))
}

/// Takes the lock and gives it back until the file `over` is there.
pub(crate) async fn work((url, place): (String, PathBuf)) {
    let mut log = Log::open(&place);
    let locks = Locks::connect(&url).await.unwrap();
    let retry = Retry::default().with_max_retries(u32::MAX);
    while !place.join("over").exists() {
        let placed = Arc::new(OnceLock::new());
        let tell = {
            let placed = placed.clone();
            move |seen: &leasehold::Contention| {
                if seen.place.is_some() {
                    placed.get_or_init(now);
                }
            }
        };
        let sent = now();
        let request = locks.lock("k").ttl(TTL).heartbeat(false).fair_lease(LEASE).retry(retry).on_contention(tell);
        let guard = request.wait_forever().acquire().await.unwrap();
        // In this order: if this process is stopped in between, it counts on less, and not on more.
        let granted = now();
        let deadline = granted + u64::try_from(guard.remaining().as_nanos()).unwrap();
        let lock = guard.lock_id().hash_id().to_string();
        log.event(sent, &lock, What::AcquireSent { may_steal: false });
        log.event(granted, &lock, What::Granted { fence: guard.fence().get(), deadline });
        log.wait(Wait { sent, placed: placed.get().copied(), granted, ..Wait::default() });
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..30))).await;
        log.event(now(), &lock, What::ReleaseSent);
        if guard.release().await.is_ok() {
            log.event(now(), &lock, What::Released);
        }
    }
    locks.shutdown().await.unwrap();
}
