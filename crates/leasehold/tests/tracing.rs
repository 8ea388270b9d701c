//! What is said through `tracing`. The subscriber is global, so this is one test in a process of
//! its own.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer, ManualClock};
use leasehold::{ErrorCode, Locks, Operation, Steal};
use test_support::eventually;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything that was said, one line for each event and each span.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

impl Said {
    fn has(&self, words: &str) -> bool {
        self.0.lock().expect("nobody panicked").iter().any(|line| line.contains(words))
    }

    async fn until(&self, words: &str) {
        eventually(words, async || self.has(words)).await;
    }

    fn note(&self, metadata: &Metadata<'_>, fields: &Fields) {
        let line = format!("{} {}{}", metadata.level(), metadata.name(), fields.0);
        self.0.lock().expect("nobody panicked").push(line);
    }
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Fields::default();
        span.record(&mut line);
        self.note(span.metadata(), &line);
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Fields::default();
        event.record(&mut line);
        self.note(event.metadata(), &line);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn what_happens_to_a_lock_is_said_without_its_key_and_its_id() {
    let said = Said::default();
    tracing::subscriber::set_global_default(said.clone()).expect("the only subscriber");
    let clock = ManualClock::new();
    let (store, faults) = FaultLayer::new(Memory::with_clock(&clock));
    let locks = Locks::builder(store).clock(&clock).build();

    let guard = locks.lock("secret-key").holder("victim").acquire().await.expect("the lock is free");
    let id = guard.lock_id().expose().to_owned();
    said.until("message=lock acquired").await;
    said.until("DEBUG acquire key=").await;
    said.until("DEBUG store operation=\"acquire\"").await;

    let waiter = tokio::spawn(locks.lock("secret-key").wait_forever().acquire());
    said.until("message=the lock is taken, waiting").await;

    faults.next(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    clock.advance(Duration::from_secs(10));
    said.until("message=a renewal failed and is tried again").await;

    guard.release().await.expect("the lock is held");
    said.until("message=lock released").await;

    let victim = waiter.await.expect("the waiter ends").expect("the lock is free");
    let steal = Steal::NEVER.with_held_longer_than(Duration::ZERO);
    clock.advance(Duration::from_millis(10));
    let _thief = locks.lock("secret-key").steal(steal).acquire().await.expect("it may be stolen");
    victim.lost().await;
    said.until("message=lock lost").await;

    let store_clock = ManualClock::new();
    let locks = Locks::builder(Memory::with_clock(&store_clock)).clock(&clock).build();
    drop(locks.lock("secret-key").acquire().await.expect("the lock is free"));
    store_clock.advance(Duration::from_secs(3600));
    drop(locks.lock("other").acquire().await.expect("the lock is free"));
    said.until("direction=\"forward\" seconds=3599.99").await;

    let everything = said.0.lock().expect("nobody panicked").join("\n");
    assert!(!everything.contains("secret-key") && !everything.contains(&id), "{everything}");
}
