//! A store whose calls go down in a history.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold::backend::{Acquire, AcquireRequest, Backend, Extend, Record, Release};
use leasehold::{Error, Fence, Key, LockId, Ttl};
use leasehold_conformance::history::{History, What};

/// Records what one client sends and hears. Every call may be repeated after an error.
pub(crate) struct Recorder {
    pub(crate) store: Arc<dyn Backend>,
    history: History,
    asked: Mutex<HashMap<LockId, Asked>>,
}

struct Asked {
    key: Key,
    /// No grant can have been decided before this moment.
    not_before: u64,
}

impl Recorder {
    pub(crate) fn new(store: Arc<dyn Backend>, history: &History) -> Self {
        Self { store, history: history.clone(), asked: Mutex::default() }
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let id = &request.lock_id;
        let sent = self.history.now();
        let first = Asked { key: request.key.clone(), not_before: sent };
        // Of several tries without an answer, any may be the one that was granted.
        let not_before = self.asked.lock().unwrap().entry(*id).or_insert(first).not_before;
        self.record(id, What::AcquireSent { may_steal: false });
        let answer = self.store.acquire(request).await;
        match &answer {
            Ok(Acquire::Granted(grant)) => {
                let deadline = after(not_before, request.ttl);
                self.record(id, What::Granted { fence: grant.fence.get(), deadline });
            }
            Ok(_) => {
                self.record(id, What::Held);
                // What was sent before this try had not arrived when it was answered.
                self.asked.lock().unwrap().get_mut(id).unwrap().not_before = sent;
            }
            Err(_) => {}
        }
        answer
    }

    pub(crate) async fn release(&self, id: &LockId) -> Result<Release, Error> {
        self.record(id, What::ReleaseSent);
        let answer = self.store.release(id).await;
        match &answer {
            Ok(Release::Released) => self.record(id, What::Released),
            Ok(_) => self.record(id, What::ReleaseAbsent),
            Err(_) => {}
        }
        answer
    }

    pub(crate) async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let deadline = after(self.history.now(), ttl);
        self.record(id, What::ExtendSent { deadline });
        let answer = self.store.extend(id, ttl).await;
        match &answer {
            Ok(Extend::Extended { .. }) => self.record(id, What::Extended { deadline }),
            Ok(_) => self.record(id, What::ExtendAbsent),
            Err(_) => {}
        }
        answer
    }

    pub(crate) async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        self.history.record(key.as_str(), "force", What::ForceSent);
        let answer = self.store.force_release(key, only).await;
        // Without an answer it may still be under way, for ever as far as the checker knows.
        if answer.is_ok() {
            self.history.record(key.as_str(), "force", What::ForceAnswered);
        }
        answer
    }

    fn record(&self, id: &LockId, what: What) {
        let key = self.asked.lock().unwrap().get(id).expect("a lock that was asked for").key.clone();
        self.history.record(key.as_str(), &id.hash_id().to_string(), what);
    }
}

fn after(time: u64, ttl: Ttl) -> u64 {
    time.saturating_add(ttl.as_millis() * 1_000_000)
}
