use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::backend::{
    Absence, Acquire, AcquireRequest, Capabilities, Extend, LookupBy, Record, Release, Subscription, Topic,
};
use leasehold::{Error, ErrorCode, Fence, Key, LockId, Metadata, Steal, Ttl};

use super::{Bug, Store};

pub(crate) type Make = fn() -> Arc<dyn Bug>;

pub(crate) const BUGS: &[(&str, Make)] = &[
    ("fence_repeats", || Arc::new(FenceRepeats::default())),
    ("fence_goes_back_after_expiry", || Arc::new(FenceGoesBackAfterExpiry::default())),
    ("release_does_not_check_the_owner", || Arc::new(ReleaseDoesNotCheckTheOwner::default())),
    ("extend_recreates", || Arc::new(ExtendRecreates::default())),
    ("tolerance_is_dropped", || Arc::new(ToleranceIsDropped)),
    ("acquire_is_not_idempotent", || Arc::new(AcquireIsNotIdempotent)),
    ("steal_leaves_the_victims_id_alive", || Arc::new(StealLeavesTheVictimsIdAlive::default())),
    ("is_locked_prolongs", || Arc::new(IsLockedProlongs)),
    ("is_locked_cleans_up", || Arc::new(IsLockedCleansUp)),
    ("release_wakes_nobody", || Arc::new(ReleaseWakesNobody)),
    ("steal_tells_nobody", || Arc::new(StealTellsNobody)),
    ("any_fence_allows_a_steal", || Arc::new(AnyFenceAllowsASteal)),
    ("no_fence_allows_a_steal", || Arc::new(NoFenceAllowsASteal)),
    ("lookup_by_id_ignores_the_owner", || Arc::new(LookupByIdIgnoresTheOwner::default())),
    ("extend_adds", || Arc::new(ExtendAdds)),
    ("acquire_takes_two_steps", || Arc::new(AcquireTakesTwoSteps)),
    ("release_takes_two_steps", || Arc::new(ReleaseTakesTwoSteps::default())),
    ("claims_it_cannot_push", || Arc::new(ClaimsItCannotPush)),
    ("absence_is_an_error", || Arc::new(AbsenceIsAnError)),
    ("metadata_is_dropped", || Arc::new(MetadataIsDropped)),
];

#[derive(Debug, Default)]
struct FenceRepeats(Mutex<HashMap<Key, Fence>>);

#[async_trait]
impl Bug for FenceRepeats {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut answer = store.acquire(request).await?;
        if let Acquire::Granted(grant) = &mut answer {
            grant.fence = *self.0.lock().expect("nobody panicked").entry(request.key.clone()).or_insert(grant.fence);
        }
        Ok(answer)
    }
}

/// Knows the last lock of each key that was not released: when another one is granted, it has
/// expired.
#[derive(Debug, Default)]
struct FenceGoesBackAfterExpiry(Mutex<HashMap<Key, (LockId, Fence)>>);

#[async_trait]
impl Bug for FenceGoesBackAfterExpiry {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut answer = store.acquire(request).await?;
        if let Acquire::Granted(grant) = &mut answer {
            let before =
                self.0.lock().expect("nobody panicked").insert(request.key.clone(), (grant.lock_id, grant.fence));
            if let Some((_, fence)) = before.filter(|(id, _)| *id != grant.lock_id) {
                grant.fence = Fence::new(fence.get() - 1)?;
            }
        }
        Ok(answer)
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        let answer = store.release(id).await?;
        if answer == Release::Released {
            self.0.lock().expect("nobody panicked").retain(|_, (last, _)| last != id);
        }
        Ok(answer)
    }
}

/// Remembers the key of every lock ever granted.
#[derive(Debug, Default)]
struct Past(Mutex<HashMap<LockId, AcquireRequest>>);

impl Past {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let answer = store.acquire(request).await?;
        if let Acquire::Granted(_) = answer {
            self.0.lock().expect("nobody panicked").insert(request.lock_id, request.clone());
        }
        Ok(answer)
    }

    fn request(&self, id: &LockId) -> Option<AcquireRequest> {
        self.0.lock().expect("nobody panicked").get(id).cloned()
    }
}

async fn end(store: &Store, key: &Key) -> Result<Option<Release>, Error> {
    let forced = store.force_release(key, None).await?;
    Ok((!forced.is_empty()).then_some(Release::Released))
}

#[derive(Debug, Default)]
struct ReleaseDoesNotCheckTheOwner(Past);

#[async_trait]
impl Bug for ReleaseDoesNotCheckTheOwner {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.0.acquire(store, request).await
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        let answer = store.release(id).await?;
        match self.0.request(id) {
            Some(request) if answer != Release::Released => Ok(end(store, &request.key).await?.unwrap_or(answer)),
            _ => Ok(answer),
        }
    }
}

#[derive(Debug, Default)]
struct ExtendRecreates(Past);

#[async_trait]
impl Bug for ExtendRecreates {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.0.acquire(store, request).await
    }

    async fn extend(&self, store: &Store, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let answer = store.extend(id, ttl).await?;
        if let (Extend::Absent(_), Some(request)) = (answer, self.0.request(id))
            && let Acquire::Granted(grant) = store.acquire(&request.with_ttl(ttl)).await?
        {
            return Ok(Extend::Extended { expires_at: grant.expires_at });
        }
        Ok(answer)
    }
}

#[derive(Debug)]
struct ToleranceIsDropped;

#[async_trait]
impl Bug for ToleranceIsDropped {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        match store.acquire(request).await? {
            Acquire::Held(contention) if contention.expires_at <= contention.now => {
                store.force_release(&request.key, None).await?;
                store.acquire(request).await
            }
            answer => Ok(answer),
        }
    }
}

#[derive(Debug)]
struct AcquireIsNotIdempotent;

#[async_trait]
impl Bug for AcquireIsNotIdempotent {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        store.release(&request.lock_id).await?;
        store.acquire(request).await
    }
}

/// Knows the key of every victim of a steal.
#[derive(Debug, Default)]
struct StealLeavesTheVictimsIdAlive(Mutex<HashMap<LockId, Key>>);

#[async_trait]
impl Bug for StealLeavesTheVictimsIdAlive {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let before = store.lookup(LookupBy::Key(&request.key)).await?;
        let answer = store.acquire(request).await?;
        if let (Some(victim), Acquire::Granted(grant)) = (before, &answer)
            && victim.lock_id != grant.lock_id
        {
            self.0.lock().expect("nobody panicked").insert(victim.lock_id, victim.key);
        }
        Ok(answer)
    }

    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        let stolen = self.0.lock().expect("nobody panicked").get(id).cloned();
        match stolen {
            Some(key) => Ok(end(store, &key).await?.unwrap_or(store.release(id).await?)),
            None => store.release(id).await,
        }
    }
}

#[derive(Debug)]
struct IsLockedProlongs;

#[async_trait]
impl Bug for IsLockedProlongs {
    async fn is_locked(&self, store: &Store, key: &Key) -> Result<bool, Error> {
        if let Some(record) = store.lookup(LookupBy::Key(key)).await? {
            store.extend(&record.lock_id, Ttl::default()).await?;
        }
        store.is_locked(key).await
    }
}

/// Ends a lock that has expired, although its holder may still extend it within the tolerance.
#[derive(Debug)]
struct IsLockedCleansUp;

#[async_trait]
impl Bug for IsLockedCleansUp {
    async fn is_locked(&self, store: &Store, key: &Key) -> Result<bool, Error> {
        let locked = store.is_locked(key).await?;
        let probe = AcquireRequest::new(key.clone(), LockId::random()?, Ttl::default());
        if locked
            && let Acquire::Held(contention) = store.acquire(&probe).await?
            && contention.expires_at <= contention.now
        {
            store.force_release(key, None).await?;
        }
        Ok(locked)
    }
}

#[derive(Debug)]
struct ReleaseWakesNobody;

#[async_trait]
impl Bug for ReleaseWakesNobody {
    async fn subscribe(&self, store: &Store, topic: Topic<'_>) -> Result<Subscription, Error> {
        match topic {
            Topic::Freed(_) => Ok(Subscription::silent()),
            _ => store.subscribe(topic).await,
        }
    }
}

#[derive(Debug)]
struct StealTellsNobody;

#[async_trait]
impl Bug for StealTellsNobody {
    async fn subscribe(&self, store: &Store, topic: Topic<'_>) -> Result<Subscription, Error> {
        match topic {
            Topic::Taken => Ok(Subscription::silent()),
            _ => store.subscribe(topic).await,
        }
    }
}

#[derive(Debug)]
struct AnyFenceAllowsASteal;

#[async_trait]
impl Bug for AnyFenceAllowsASteal {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut request = request.clone();
        if request.steal.fence().is_some()
            && let Some(record) = store.lookup(LookupBy::Key(&request.key)).await?
        {
            request.steal = request.steal.with_fence(record.fence);
        }
        store.acquire(&request).await
    }
}

#[derive(Debug)]
struct NoFenceAllowsASteal;

#[async_trait]
impl Bug for NoFenceAllowsASteal {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut request = request.clone();
        if request.steal.fence().is_some() {
            request.steal = Steal::NEVER;
        }
        store.acquire(&request).await
    }
}

#[derive(Debug, Default)]
struct LookupByIdIgnoresTheOwner(Past);

#[async_trait]
impl Bug for LookupByIdIgnoresTheOwner {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.0.acquire(store, request).await
    }

    async fn lookup(&self, store: &Store, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let past = match by {
            LookupBy::Id(id) => self.0.request(id),
            _ => None,
        };
        match &past {
            Some(request) => store.lookup(LookupBy::Key(&request.key)).await,
            None => store.lookup(by).await,
        }
    }
}

#[derive(Debug)]
struct ExtendAdds;

#[async_trait]
impl Bug for ExtendAdds {
    async fn extend(&self, store: &Store, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let rest = store
            .lookup(LookupBy::Id(id))
            .await?
            .map_or(0, |record| record.expires_at.as_millis() - record.acquired_at.as_millis());
        let sum = (ttl.as_millis() + rest).min(Ttl::MAX.as_millis());
        store.extend(id, Ttl::from_millis(sum)?).await
    }
}

#[derive(Debug)]
struct MetadataIsDropped;

#[async_trait]
impl Bug for MetadataIsDropped {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        store.acquire(&request.clone().with_metadata(Metadata::default())).await
    }
}

/// Reserves the key under an id of its own first: dropped in between, it leaves a lock that nobody
/// can release.
#[derive(Debug)]
struct AcquireTakesTwoSteps;

#[async_trait]
impl Bug for AcquireTakesTwoSteps {
    async fn acquire(&self, store: &Store, request: &AcquireRequest) -> Result<Acquire, Error> {
        let reserved = request.clone().with_lock_id(LockId::random()?);
        if let Acquire::Granted(_) = store.acquire(&reserved).await? {
            tokio::task::yield_now().await;
            store.release(&reserved.lock_id).await?;
        }
        store.acquire(request).await
    }
}

/// Forgets the id before it frees the key: dropped in between, it leaves a lock that nobody can
/// release.
#[derive(Debug, Default)]
struct ReleaseTakesTwoSteps(Mutex<HashSet<LockId>>);

#[async_trait]
impl Bug for ReleaseTakesTwoSteps {
    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        if !self.0.lock().expect("nobody panicked").insert(*id) {
            return Ok(Release::Absent(Absence::NotFound));
        }
        tokio::task::yield_now().await;
        let answer = store.release(id).await?;
        self.0.lock().expect("nobody panicked").remove(id);
        Ok(answer)
    }
}

#[derive(Debug)]
struct ClaimsItCannotPush;

#[async_trait]
impl Bug for ClaimsItCannotPush {
    fn capabilities(&self, store: &Store) -> Capabilities {
        store.capabilities().with_wake_ups(false)
    }
}

#[derive(Debug)]
struct AbsenceIsAnError;

#[async_trait]
impl Bug for AbsenceIsAnError {
    async fn release(&self, store: &Store, id: &LockId) -> Result<Release, Error> {
        match store.release(id).await? {
            Release::Absent(_) => Err(Error::new(ErrorCode::Internal, "no such lock")),
            answer => Ok(answer),
        }
    }
}
