use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::backend::{
    Absence, Acquire, AcquireRequest, Event, Extend, ForceRelease, ListPage, ListRequest, LookupBy, Publisher, Record,
    Release, Subscription, Topic,
};
use crate::clock::Clock;
use crate::sync::lock;
use crate::{Error, Fence, Key, LockId, Loss, Timestamp, Ttl};

/// Enough that two of a few dozen threads seldom meet, few enough that an empty store is small.
const SHARDS: usize = 64;

/// Lock order: a key's shard first, then an id's shard or the readers of taken locks; never two
/// shards of a kind.
#[derive(Debug)]
pub(super) struct Store {
    clock: Clock,
    hasher: RandomState,
    keys: [Mutex<KeyShard>; SHARDS],
    ids: [Mutex<HashMap<LockId, Key>>; SHARDS],
    taken: Mutex<Vec<Publisher>>,
    granted: Mutex<Vec<Publisher>>,
    /// Whether anybody ever wanted to hear of grants.
    watched: AtomicBool,
    this: Weak<Store>,
}

#[derive(Debug, Default)]
struct KeyShard {
    records: HashMap<Key, Record>,
    /// The highest fence granted in this shard. One counter for all its keys is as good as one for
    /// each, because fences need only increase, and it lets go of keys that are no longer used.
    last_fence: Option<Fence>,
    waiting: HashMap<Key, Vec<Publisher>>,
}

impl Store {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock,
            hasher: RandomState::new(),
            keys: std::array::from_fn(|_| Mutex::default()),
            ids: std::array::from_fn(|_| Mutex::default()),
            taken: Mutex::default(),
            granted: Mutex::default(),
            watched: AtomicBool::new(false),
            this: this.clone(),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.timestamp()
    }

    pub(super) fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let mut guard = self.key_shard(&request.key);
        let shard = &mut *guard;
        // Read under the shard's lock: otherwise a slow caller could grant with a time before its
        // predecessor's.
        let now = self.clock.timestamp();
        let mut stolen = None;
        if let Some(record) = shard.records.get(&request.key).filter(|record| record.expires_at.is_live(now)) {
            if record.lock_id == request.lock_id {
                return Ok(Acquire::Granted(record.grant()));
            }
            if !request.steal.allows(&request.holder, record, now) {
                return Ok(Acquire::Held(record.contention(now)));
            }
            stolen = Some(record.fence);
        }
        let fence = Fence::next(shard.last_fence, now)?;
        self.claim(request)?;
        shard.last_fence = Some(fence);
        let record = Record {
            key: request.key.clone(),
            lock_id: request.lock_id,
            fence,
            acquired_at: Timestamp::from_millis(now.as_millis()),
            expires_at: now.expiry(request.ttl),
            holder: Some(request.holder.clone()),
            metadata: request.metadata.clone(),
        };
        let grant = record.grant();
        let before = shard.records.insert(request.key.clone(), record);
        if let Some(dead) = before.map(|record| record.lock_id).filter(|dead| *dead != request.lock_id) {
            self.id_shard(&dead).remove(&dead);
        }
        drop(guard);
        if let Some(fence) = stolen {
            self.tell_taken(&request.key, fence, Loss::Stolen);
        }
        if self.watched.load(Ordering::Relaxed) {
            let (key, holder) = (request.key.clone(), Some(request.holder.clone()));
            tell(Some(&lock(&self.granted)), &Event::Granted { key, fence, holder });
        }
        Ok(Acquire::Granted(grant))
    }

    /// Ties the lock id to its key, and refuses an id that is tied to another one.
    fn claim(&self, request: &AcquireRequest) -> Result<(), Error> {
        let mut ids = self.id_shard(&request.lock_id);
        let key = ids.entry(request.lock_id).or_insert_with(|| request.key.clone());
        if *key == request.key { Ok(()) } else { Err(Error::id_in_use()) }
    }

    pub(super) fn release(&self, id: &LockId) -> Release {
        self.if_owned(id, Release::Absent, |mut shard, key, _| {
            shard.records.remove(key);
            self.id_shard(id).remove(id);
            let waiting = shard.waiting.get(key).cloned();
            drop(shard);
            tell(waiting.as_deref(), &Event::Freed);
            Release::Released
        })
    }

    pub(super) fn extend(&self, id: &LockId, ttl: Ttl) -> Extend {
        self.if_owned(id, Extend::Absent, |mut shard, key, now| {
            let expires_at = now.expiry(ttl);
            if let Some(record) = shard.records.get_mut(key) {
                record.expires_at = expires_at;
            }
            Extend::Extended { expires_at }
        })
    }

    /// Resolves `id`, checks that it still owns the live record, and only then acts, all under the
    /// shard's lock.
    fn if_owned<T>(
        &self,
        id: &LockId,
        absent: impl FnOnce(Absence) -> T,
        act: impl FnOnce(MutexGuard<'_, KeyShard>, &Key, Timestamp) -> T,
    ) -> T {
        let Some(key) = self.key_of(id) else {
            return absent(Absence::NotFound);
        };
        let shard = self.key_shard(&key);
        let now = self.clock.timestamp();
        match shard.records.get(&key) {
            Some(record) if record.lock_id != *id => absent(Absence::NotFound),
            Some(record) if !record.expires_at.is_live(now) => absent(Absence::Expired),
            Some(_) => act(shard, &key, now),
            None => absent(Absence::NotFound),
        }
    }

    pub(super) fn is_locked(&self, key: &Key) -> bool {
        let shard = self.key_shard(key);
        let now = self.clock.timestamp();
        shard.records.get(key).is_some_and(|record| record.expires_at.is_live(now))
    }

    pub(super) fn lookup(&self, by: LookupBy<'_>) -> Option<Record> {
        let key = match by {
            LookupBy::Key(key) => key.clone(),
            LookupBy::Id(id) => self.key_of(id)?,
        };
        let shard = self.key_shard(&key);
        let now = self.clock.timestamp();
        let record = shard.records.get(&key).filter(|record| record.expires_at.is_live(now))?;
        match by {
            LookupBy::Id(id) if record.lock_id != *id => None,
            _ => Some(record.clone()),
        }
    }

    /// In the order of the keys, so that a page can start after the last key of the one before.
    pub(super) fn list(&self, request: &ListRequest) -> ListPage {
        let now = self.clock.timestamp();
        let wanted = |record: &&Record| {
            record.expires_at.is_live(now)
                && record.key.as_str().starts_with(request.prefix())
                && request.cursor().is_none_or(|after| record.key.as_str() > after)
        };
        let limit = request.page_size();
        let mut records: Vec<Record> = Vec::new();
        for shard in &self.keys {
            records.extend(lock(shard).records.values().filter(wanted).cloned());
            records.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            // One more than fits tells whether there is a next page.
            records.truncate(limit + 1);
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| last.key.as_str().to_owned());
        ListPage { records, next }
    }

    pub(super) fn subscribe(&self, topic: Topic<'_>) -> Subscription {
        match topic {
            Topic::Freed(key) => {
                let (store, unsubscribed) = (self.this.clone(), key.clone());
                let (publisher, subscription) = Subscription::channel(topic.backlog(), move || {
                    if let Some(store) = store.upgrade() {
                        store.forget_closed(&unsubscribed);
                    }
                });
                self.key_shard(key).waiting.entry(key.clone()).or_default().push(publisher);
                subscription
            }
            Topic::Taken => add_reader(&self.taken, topic),
            Topic::Granted => {
                self.watched.store(true, Ordering::Relaxed);
                add_reader(&self.granted, topic)
            }
        }
    }

    fn forget_closed(&self, key: &Key) {
        let mut shard = self.key_shard(key);
        if let Some(waiting) = shard.waiting.get_mut(key) {
            waiting.retain(|publisher| !publisher.is_closed());
            if waiting.is_empty() {
                shard.waiting.remove(key);
            }
        }
    }

    pub(super) fn force_release(&self, key: &Key) -> ForceRelease {
        let mut shard = self.key_shard(key);
        let now = self.clock.timestamp();
        let Some(record) = shard.records.remove(key) else {
            return ForceRelease::Absent;
        };
        self.id_shard(&record.lock_id).remove(&record.lock_id);
        let waiting = shard.waiting.get(key).cloned();
        drop(shard);
        if !record.expires_at.is_live(now) {
            return ForceRelease::Absent;
        }
        tell(waiting.as_deref(), &Event::Freed);
        self.tell_taken(key, record.fence, Loss::ForceReleased);
        ForceRelease::Released(record)
    }

    pub(super) fn sweep(&self) -> usize {
        (0..SHARDS).map(|shard| self.sweep_shard(shard)).sum()
    }

    pub(super) fn sweep_shard(&self, shard: usize) -> usize {
        let swept = self.clock.timestamp().latest_swept();
        let mut shard = lock(&self.keys[shard % SHARDS]);
        let before = shard.records.len();
        shard.records.retain(|_, record| {
            let keep = record.expires_at > swept;
            if !keep {
                self.id_shard(&record.lock_id).remove(&record.lock_id);
            }
            keep
        });
        before - shard.records.len()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.iter().map(|shard| lock(shard).records.len()).sum()
    }

    fn key_of(&self, id: &LockId) -> Option<Key> {
        self.id_shard(id).get(id).cloned()
    }

    fn tell_taken(&self, key: &Key, fence: Fence, how: Loss) {
        tell(Some(&lock(&self.taken)), &Event::Taken { key: key.clone(), fence, how });
    }

    fn key_shard(&self, key: &Key) -> MutexGuard<'_, KeyShard> {
        lock(&self.keys[self.shard_of(key)])
    }

    fn id_shard(&self, id: &LockId) -> MutexGuard<'_, HashMap<LockId, Key>> {
        lock(&self.ids[self.shard_of(id)])
    }

    fn shard_of(&self, it: &impl Hash) -> usize {
        // The remainder is below the number of shards.
        #[allow(clippy::cast_possible_truncation)]
        let shard = (self.hasher.hash_one(it) % SHARDS as u64) as usize;
        shard
    }
}

fn tell(readers: Option<&[Publisher]>, event: &Event) {
    for reader in readers.unwrap_or_default() {
        reader.publish(event.clone());
    }
}

/// A subscription to events that are no key's.
fn add_reader(readers: &Mutex<Vec<Publisher>>, topic: Topic<'_>) -> Subscription {
    let (publisher, subscription) = Subscription::channel(topic.backlog(), || {});
    let mut readers = lock(readers);
    readers.retain(|publisher| !publisher.is_closed());
    readers.push(publisher);
    subscription
}
