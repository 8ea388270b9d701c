use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::event::{EventResult, EventType, LockEvent, Reason};
use crate::{Key, LockId};

/// A callback that is this many events behind starts to miss some.
const BACKLOG: usize = 1024;

/// An event before its identifiers are hashed.
pub(super) struct Raw {
    pub(super) event_type: EventType,
    pub(super) result: EventResult,
    pub(super) reason: Option<Reason>,
    pub(super) key: Option<Key>,
    pub(super) lock_id: Option<LockId>,
}

enum Message {
    Event(Raw),
    Flush(SyncSender<()>),
}

/// The thread on which events are hashed and the callback runs. It ends when this value is dropped.
pub(super) struct Worker {
    messages: SyncSender<Message>,
    dropped: AtomicU64,
}

impl Worker {
    pub(super) fn start(
        allow: impl Fn(&LockEvent) -> bool + Send + 'static,
        on_event: impl Fn(&LockEvent) + Send + 'static,
    ) -> Self {
        let (messages, received) = sync_channel(BACKLOG);
        let thread = thread::Builder::new().name("leasehold-telemetry".into());
        // Without the thread the receiver is gone, and every event counts as dropped.
        if let Err(error) = thread.spawn(move || work(&received, &allow, &on_event)) {
            tracing::warn!(%error, "cannot start the telemetry thread; events are dropped");
        }
        Self { messages, dropped: AtomicU64::new(0) }
    }

    pub(super) fn report(&self, raw: Raw) {
        if self.messages.try_send(Message::Event(raw)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.messages.send(Message::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

fn work(received: &Receiver<Message>, allow: &dyn Fn(&LockEvent) -> bool, on_event: &dyn Fn(&LockEvent)) {
    while let Ok(message) = received.recv() {
        match message {
            Message::Event(raw) => {
                if catch_unwind(AssertUnwindSafe(|| deliver(raw, allow, on_event))).is_err() {
                    tracing::debug!("a telemetry callback panicked");
                }
            }
            Message::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

fn deliver(raw: Raw, allow: &dyn Fn(&LockEvent) -> bool, on_event: &dyn Fn(&LockEvent)) {
    let mut event = LockEvent {
        event_type: raw.event_type,
        result: raw.result,
        key_hash: raw.key.as_ref().map(Key::hash_id),
        lock_id_hash: raw.lock_id.as_ref().map(LockId::hash_id),
        reason: raw.reason,
        key: None,
        lock_id: None,
    };
    if allow(&event) {
        event.key = raw.key;
        event.lock_id = raw.lock_id;
    }
    on_event(&event);
}
