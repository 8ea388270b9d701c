//! Bugs of lines.

use std::sync::Mutex;

use async_trait::async_trait;
use leasehold::backend::{
    Absence, Acquire, AcquireRequest, Event, Line, LookupBy, Publisher, Release, Subscription, Topic, Waiter,
};
use leasehold::{Contention, Error, Key, LockId, TIME_TOLERANCE, Timestamp, Ttl};

use super::{Bug, Store};

/// Wakes everybody in line whenever anything is released.
#[derive(Debug, Default)]
pub(super) struct EverybodyIsCalled(Mutex<Vec<(Key, Publisher)>>);

#[async_trait]
impl Bug for EverybodyIsCalled {
    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        let held = store.lookup(LookupBy::Id(id)).await?;
        let answer = store.release(id).await?;
        if let Some(record) = held {
            for (_, waiting) in self.0.lock().expect("nobody panicked").iter().filter(|(key, _)| *key == record.key) {
                waiting.publish(Event::Freed);
            }
        }
        Ok(answer)
    }

    async fn subscribe(&self, store: &Store, topic: Topic<'_>) -> Result<Subscription, Error> {
        let mut called = store.subscribe(topic).await?;
        let Topic::Turn(key, _) = topic else { return Ok(called) };
        let (publisher, subscription) = Subscription::channel(1, || {});
        let rightly = publisher.clone();
        tokio::spawn(async move {
            while let Some(event) = called.next().await {
                rightly.publish(event);
            }
        });
        self.0.lock().expect("nobody panicked").push((key.clone(), publisher));
        Ok(subscription)
    }
}

/// Whoever asks while nobody holds the lock gets it, wherever in line it stands.
#[derive(Debug)]
pub(super) struct TheLastInLineIsLetIn;

#[async_trait]
impl Bug for TheLastInLineIsLetIn {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let answer = store.acquire(request).await?;
        match &answer {
            Acquire::Held(held) if held.holders == 0 && request.line != Line::Ignore => {}
            _ => return Ok(answer),
        }
        let line = store.inspect(&request.key).await?.waiters;
        for waiter in &line {
            store.release(&waiter.lock_id).await?;
        }
        let answer = store.acquire(request).await?;
        for waiter in line.into_iter().filter(|waiter| waiter.lock_id != request.lock_id) {
            stands(store, waiter).await?;
        }
        Ok(answer)
    }
}

/// Puts somebody into the line.
async fn stands(store: &Store, waiter: Waiter) -> Result<(), Error> {
    let line = Line::Join { lease: Ttl::default() };
    let request =
        AcquireRequest::new(waiter.key, waiter.lock_id, Ttl::default()).with_mode(waiter.mode).with_line(line);
    let named = request.with_holder(waiter.holder.unwrap_or_default()).with_metadata(waiter.metadata);
    store.acquire(&named).await.map(drop)
}

#[derive(Debug)]
pub(super) struct APlaceNeverEnds;

#[async_trait]
impl Bug for APlaceNeverEnds {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let line = match request.line {
            Line::Join { .. } => Line::Join { lease: Ttl::MAX },
            line => line,
        };
        store.acquire(&request.clone().with_line(line)).await
    }
}

/// The lease of a place begins when those before it end: leases add up.
#[derive(Debug)]
pub(super) struct LeasesAddUp;

#[async_trait]
impl Bug for LeasesAddUp {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let Line::Join { lease } = request.line else { return store.acquire(request).await };
        let line = store.inspect(&request.key).await?.waiters;
        let before = line.iter().take_while(|waiter| waiter.lock_id != request.lock_id).count();
        let times = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1);
        let added = lease.as_duration().checked_mul(times).and_then(|lease| Ttl::try_from(lease).ok());
        let line = Line::Join { lease: added.unwrap_or(Ttl::MAX) };
        store.acquire(&request.clone().with_line(line)).await
    }
}

/// Knows who stands in line, in order, and until when if nobody is called.
#[derive(Debug, Default)]
pub(super) struct ACalledHeadIsNeverPassedOver(Mutex<Vec<(LockId, Key, Timestamp)>>);

impl ACalledHeadIsNeverPassedOver {
    /// Until when somebody is waited for who stood in line before the one that was let in.
    fn awaited(&self, request: &AcquireRequest, now: Timestamp) -> Option<Timestamp> {
        let line = self.0.lock().expect("nobody panicked");
        let before = line.iter().take_while(|(id, ..)| *id != request.lock_id);
        let mut waits = before.filter(|(_, key, until)| *key == request.key && *until > now);
        waits.next().map(|(.., until)| *until)
    }
}

#[async_trait]
impl Bug for ACalledHeadIsNeverPassedOver {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let repeated = store.lookup(LookupBy::Id(&request.lock_id)).await?.is_some();
        let answer = store.acquire(request).await?;
        if repeated {
            return Ok(answer);
        }
        match (&answer, request.line) {
            (Acquire::Held(held), Line::Join { lease }) => {
                let mut line = self.0.lock().expect("nobody panicked");
                let place = (request.lock_id, request.key.clone(), held.now.expiry(lease));
                match line.iter_mut().find(|(id, ..)| *id == request.lock_id) {
                    Some(found) => *found = place,
                    None => line.push(place),
                }
            }
            (Acquire::Granted(grant), Line::Heed | Line::Join { .. }) if !request.steal.is_possible() => {
                let now = grant.acquired_at;
                if let Some(until) = self.awaited(request, now) {
                    store.release(&request.lock_id).await?;
                    let tolerance = u64::try_from(TIME_TOLERANCE.as_millis()).expect("a short time");
                    let ends = Timestamp::from_millis(until.as_millis() - tolerance);
                    return Ok(Acquire::Held(Contention::new(None, now, ends, now).with_holders(0)));
                }
            }
            _ => {}
        }
        if matches!(answer, Acquire::Granted(_)) {
            self.0.lock().expect("nobody panicked").retain(|(id, ..)| *id != request.lock_id);
        }
        Ok(answer)
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        self.0.lock().expect("nobody panicked").retain(|(waiting, ..)| waiting != id);
        store.release(id).await
    }
}

#[derive(Debug)]
pub(super) struct AskingAgainGoesToTheEndOfTheLine;

#[async_trait]
impl Bug for AskingAgainGoesToTheEndOfTheLine {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let line = store.inspect(&request.key).await?.waiters;
        if line.iter().any(|waiter| waiter.lock_id == request.lock_id) {
            store.release(&request.lock_id).await?;
        }
        store.acquire(request).await
    }
}

#[derive(Debug)]
pub(super) struct APlaceCannotBeGivenUp;

#[async_trait]
impl Bug for APlaceCannotBeGivenUp {
    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        match store.lookup(LookupBy::Id(id)).await? {
            Some(_) => store.release(id).await,
            None => Ok(Release::Absent(Absence::NotFound)),
        }
    }
}

#[derive(Debug)]
pub(super) struct AKeptLockLooksHeld;

#[async_trait]
impl Bug for AKeptLockLooksHeld {
    async fn is_locked(&self, store: &Store, key: &Key) -> Result<bool, Error> {
        Ok(store.is_locked(key).await? || !store.inspect(key).await?.waiters.is_empty())
    }
}
