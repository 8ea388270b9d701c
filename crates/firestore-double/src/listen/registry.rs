use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tonic::Status;

/// The streams that are open, what they listen to, and ways to disturb all of them.
#[derive(Debug)]
pub(crate) struct Listeners {
    open: Mutex<Open>,
    /// Why the streams that are open now have to end.
    close: watch::Sender<Option<Status>>,
    /// Whether streams keep what they hear to themselves.
    muted: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    streams: BTreeMap<u64, Interests>,
}

/// What one stream listens to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interests {
    pub(crate) documents: BTreeSet<String>,
    /// The collections of its queries.
    pub(crate) collections: Vec<String>,
}

impl Listeners {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default(), close: watch::Sender::new(None), muted: watch::Sender::new(false) }
    }

    pub(crate) fn count(&self) -> usize {
        self.open().streams.len()
    }

    /// What all streams listen to.
    pub(crate) fn interests(&self) -> Vec<Interests> {
        self.open().streams.values().cloned().collect()
    }

    /// Ends all streams that are open, and says how many.
    pub(crate) fn close_all(&self, status: Status) -> usize {
        self.close.send_replace(Some(status));
        self.count()
    }

    pub(crate) fn mute(&self, muted: bool) {
        self.muted.send_replace(muted);
    }

    pub(super) fn closing(&self) -> watch::Receiver<Option<Status>> {
        self.close.subscribe()
    }

    pub(super) fn muting(&self) -> watch::Receiver<bool> {
        self.muted.subscribe()
    }

    pub(super) fn register(&self) -> u64 {
        let mut open = self.open();
        open.last += 1;
        let id = open.last;
        open.streams.insert(id, Interests::default());
        id
    }

    pub(super) fn update(&self, id: u64, interests: Interests) {
        self.open().streams.insert(id, interests);
    }

    pub(super) fn remove(&self, id: u64) {
        self.open().streams.remove(&id);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
