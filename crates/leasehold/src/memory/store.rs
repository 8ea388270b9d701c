use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::entry::Entry;
use super::readers::Readers;
use crate::backend::{
    Absence, Acquire, AcquireAll, AcquireRequest, Event, Extend, Grant, Inspected, Line, ListPage, ListRequest,
    LookupBy, Mode, Publisher, Record, Release, Subscription, Topic,
};
use crate::clock::Clock;
use crate::key_state::{Acquired, KeyState};
use crate::map::{Map, RandomState};
use crate::sync::lock;
use crate::{Error, Fence, Key, LockId, Loss, Timestamp, Ttl};

/// Enough that two of a few dozen threads seldom meet, few enough that an empty store is small.
const SHARDS: usize = 64;

/// Lock order: the shards of keys first, in the order of their numbers, then one of an id or the
/// readers of taken locks.
#[derive(Debug)]
pub(super) struct Store {
    clock: Clock,
    hasher: RandomState,
    keys: [Mutex<KeyShard>; SHARDS],
    ids: [Mutex<Map<LockId, Key>>; SHARDS],
    taken: Mutex<Vec<Publisher>>,
    granted: Mutex<Vec<Publisher>>,
    /// Whether anybody ever wanted to hear of grants.
    watched: AtomicBool,
    this: Weak<Store>,
}

#[derive(Debug, Default)]
struct KeyShard {
    entries: Map<Key, Entry>,
    /// The highest fence granted in this shard. One counter for all its keys is as good as one for
    /// each, because fences need only increase, and it lets go of keys that are no longer used.
    last_fence: Option<Fence>,
    readers: Map<Key, Readers>,
}

/// Whom to tell once the shard is unlocked.
#[must_use]
enum Tell {
    Nobody,
    /// It is their turn.
    Called(Readers, LockId),
    /// There is nobody in line.
    Freed(Readers),
}

impl Tell {
    fn now(self) {
        match self {
            Tell::Nobody => {}
            Tell::Called(readers, id) => readers.call(&id),
            Tell::Freed(readers) => readers.freed(),
        }
    }
}

impl Store {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock,
            hasher: RandomState::default(),
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
        match shard.entries.get(&request.key) {
            Some(Entry::Plain(record)) if record.expires_at.is_live(now) => {
                if record.lock_id == request.lock_id {
                    return Ok(Acquire::Granted(record.grant()));
                }
                let joins = matches!(request.line, Line::Join { .. });
                if !joins && !request.steal.allows(&request.holder, record, now) {
                    return Ok(Acquire::Held(record.contention(now)));
                }
            }
            None | Some(Entry::Plain(_)) if request.mode == Mode::Exclusive => {
                let grant = self.grant_plain(shard, request, now)?;
                drop(guard);
                self.tell_granted(request, grant.fence);
                return Ok(Acquire::Granted(grant));
            }
            _ => {}
        }
        let (acquired, tell) = self.decide(shard, request, now)?;
        drop(guard);
        tell.now();
        for victim in &acquired.stolen {
            self.tell_taken(&request.key, victim.fence, Loss::Stolen);
        }
        if acquired.is_new
            && let Acquire::Granted(grant) = &acquired.answer
        {
            self.tell_granted(request, grant.fence);
        }
        Ok(acquired.answer)
    }

    /// Grants an exclusive lock that nobody holds or waits for.
    fn grant_plain(&self, shard: &mut KeyShard, request: &AcquireRequest, now: Timestamp) -> Result<Grant, Error> {
        let fence = Fence::next(shard.last_fence, now)?;
        self.claim(request)?;
        shard.last_fence = Some(fence);
        let record = Record {
            key: request.key.clone(),
            lock_id: request.lock_id,
            fence,
            acquired_at: now.whole_millis(),
            expires_at: now.expiry(request.ttl),
            holder: Some(request.holder.clone()),
            metadata: request.metadata.clone(),
            mode: Mode::Exclusive,
            slot: None,
        };
        let grant = record.grant();
        if let Some(Entry::Plain(dead)) = shard.entries.insert(request.key.clone(), Entry::Plain(record))
            && dead.lock_id != request.lock_id
        {
            self.id_shard(&dead.lock_id).remove(&dead.lock_id);
        }
        Ok(grant)
    }

    /// Decides about a request where others hold or wait.
    fn decide(
        &self,
        shard: &mut KeyShard,
        request: &AcquireRequest,
        now: Timestamp,
    ) -> Result<(Acquired, Tell), Error> {
        let is_new = self.claim(request)?;
        let last = shard.last_fence;
        let (acquired, tell) =
            self.change(shard, &request.key, now, |state| state.acquire(request, now, || Fence::next(last, now)));
        let has_place = |answer: &Acquire| matches!(answer, Acquire::Held(held) if held.place.is_some());
        match &acquired {
            Ok(Acquired { answer: Acquire::Granted(grant), .. }) => shard.last_fence = last.max(Some(grant.fence)),
            Ok(Acquired { answer, .. }) if has_place(answer) => {}
            _ if is_new => drop(self.id_shard(&request.lock_id).remove(&request.lock_id)),
            _ => {}
        }
        Ok((acquired?, tell))
    }

    /// Has `act` change what is kept of a key, and calls who is next in line.
    fn change<T>(
        &self,
        shard: &mut KeyShard,
        key: &Key,
        now: Timestamp,
        act: impl FnOnce(&mut KeyState) -> T,
    ) -> (T, Tell) {
        let mut state = shard.entries.remove(key).map(Entry::into_state).unwrap_or_default();
        let held = state.live(now).count();
        let value = act(&mut state);
        let called = state.call_next(now);
        for id in state.gone.drain(..) {
            self.id_shard(&id).remove(&id);
        }
        let left = state.live(now).count();
        let freed = state.line.is_empty() && (left == 0 || left < held);
        if let Some(entry) = Entry::of(state) {
            shard.entries.insert(key.clone(), entry);
        }
        let tell = match (shard.readers.get(key), called) {
            (Some(readers), Some(id)) => Tell::Called(readers.clone(), id),
            (Some(readers), None) if freed => Tell::Freed(readers.clone()),
            _ => Tell::Nobody,
        };
        (value, tell)
    }

    pub(super) fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let mut numbers: Vec<_> = requests.iter().map(|request| self.shard_of(&request.key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards: Map<_, _> = numbers.into_iter().map(|number| (number, lock(&self.keys[number]))).collect();
        let now = self.clock.timestamp();
        let states: Vec<_> = requests
            .iter()
            .map(|request| shards[&self.shard_of(&request.key)].entries.get(&request.key).map(Entry::to_state))
            .map(Option::unwrap_or_default)
            .collect();
        let held: Vec<_> =
            requests.iter().zip(&states).map(|(request, state)| state.grant_of(&request.lock_id, now)).collect();
        if held.iter().all(|held| held.is_some()) {
            return Ok(AcquireAll::Granted(held.into_iter().flatten().map(Record::grant).collect()));
        }
        for (which, (request, state)) in requests.iter().zip(&states).enumerate() {
            let Some(contention) = state.obstacle(request, now) else { continue };
            if let Some(mut shard) = shards.remove(&self.shard_of(&request.key)) {
                let ((), tell) = self.change(&mut shard, &request.key, now, |_| ());
                drop((shard, shards));
                tell.now();
            }
            return Ok(AcquireAll::Held { which, contention });
        }
        let last = shards.values().filter_map(|shard| shard.last_fence).max();
        let fence = Fence::next(last, now)?;
        self.claim_all(requests)?;
        let (mut grants, mut tells) = (Vec::new(), Vec::new());
        for request in requests {
            let Some(shard) = shards.get_mut(&self.shard_of(&request.key)) else { continue };
            shard.last_fence = Some(fence);
            let (grant, tell) = self.change(shard, &request.key, now, |state| state.grant(request, fence, now));
            grants.push(grant);
            tells.push(tell);
        }
        drop(shards);
        tells.into_iter().for_each(Tell::now);
        requests.iter().for_each(|request| self.tell_granted(request, fence));
        Ok(AcquireAll::Granted(grants))
    }

    /// Ties each lock id to its key, or none of them.
    fn claim_all(&self, requests: &[AcquireRequest]) -> Result<(), Error> {
        let mut claimed = Vec::new();
        for request in requests {
            match self.claim(request) {
                Ok(true) => claimed.push(request.lock_id),
                Ok(false) => {}
                Err(error) => {
                    for id in claimed {
                        self.id_shard(&id).remove(&id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ties the lock id to its key, and refuses an id that is tied to another one. Tells whether it
    /// is newly tied.
    fn claim(&self, request: &AcquireRequest) -> Result<bool, Error> {
        let mut ids = self.id_shard(&request.lock_id);
        let mut is_new = false;
        let key = ids.entry(request.lock_id).or_insert_with(|| {
            is_new = true;
            request.key.clone()
        });
        if *key == request.key { Ok(is_new) } else { Err(Error::id_in_use()) }
    }

    pub(super) fn release(&self, id: &LockId) -> Release {
        let Some(key) = self.key_of(id) else {
            return Release::Absent(Absence::NotFound);
        };
        let mut guard = self.key_shard(&key);
        let shard = &mut *guard;
        let now = self.clock.timestamp();
        if let Some(Entry::Plain(record)) = shard.entries.get(&key) {
            if record.lock_id != *id {
                return Release::Absent(Absence::NotFound);
            }
            if !record.expires_at.is_live(now) {
                return Release::Absent(Absence::Expired);
            }
            shard.entries.remove(&key);
            self.id_shard(id).remove(id);
            let readers = shard.readers.get(&key).cloned();
            drop(guard);
            readers.map_or(Tell::Nobody, Tell::Freed).now();
            return Release::Released;
        }
        let (answer, tell) = self.change(shard, &key, now, |state| state.release(id, now));
        drop(guard);
        tell.now();
        answer
    }

    pub(super) fn extend(&self, id: &LockId, ttl: Ttl) -> Extend {
        let Some(key) = self.key_of(id) else {
            return Extend::Absent(Absence::NotFound);
        };
        let mut shard = self.key_shard(&key);
        let now = self.clock.timestamp();
        match shard.entries.get_mut(&key).and_then(|entry| entry.grant_mut(id)) {
            Some(grant) if grant.expires_at.is_live(now) => {
                grant.expires_at = now.expiry(ttl);
                Extend::Extended { expires_at: grant.expires_at }
            }
            Some(_) => Extend::Absent(Absence::Expired),
            None => Extend::Absent(Absence::NotFound),
        }
    }

    pub(super) fn is_locked(&self, key: &Key) -> bool {
        self.lookup(LookupBy::Key(key)).is_some()
    }

    pub(super) fn lookup(&self, by: LookupBy<'_>) -> Option<Record> {
        let (key, id) = match by {
            LookupBy::Key(key) => (key.clone(), None),
            LookupBy::Id(id) => (self.key_of(id)?, Some(id)),
        };
        let shard = self.key_shard(&key);
        let now = self.clock.timestamp();
        shard.entries.get(&key)?.live(id, now).cloned()
    }

    pub(super) fn inspect(&self, key: &Key) -> Inspected {
        let shard = self.key_shard(key);
        let now = self.clock.timestamp();
        shard.entries.get(key).map(|entry| entry.to_state().inspect(now)).unwrap_or_default()
    }

    /// In the order of the keys and fences, so that a page can start after the last grant of the
    /// one before.
    pub(super) fn list(&self, request: &ListRequest) -> ListPage {
        let now = self.clock.timestamp();
        let place = |record: &Record| (record.key.as_str().to_owned(), record.fence);
        let after = request.cursor().and_then(|cursor| {
            let (fence, key) = cursor.split_once(' ')?;
            Some((key.to_owned(), fence.parse().ok()?))
        });
        let wanted = |record: &&Record| {
            record.expires_at.is_live(now)
                && record.key.as_str().starts_with(request.prefix())
                && after.as_ref().is_none_or(|after| place(record) > *after)
        };
        let limit = request.page_size();
        let mut records: Vec<Record> = Vec::new();
        for shard in &self.keys {
            let shard = lock(shard);
            records.extend(shard.entries.values().flat_map(Entry::grants).filter(wanted).cloned());
            records.sort_unstable_by_key(place);
            // One more than fits tells whether there is a next page.
            records.truncate(limit + 1);
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| format!("{} {}", last.fence, last.key.as_str()));
        let waiting = records.iter().filter_map(|record| {
            let shard = self.key_shard(&record.key);
            let waiting = shard.entries.get(&record.key)?.waiting(now);
            (waiting > 0).then(|| (record.key.clone(), waiting))
        });
        let waiting = waiting.collect();
        ListPage { records, waiting, next }
    }

    pub(super) fn subscribe(&self, topic: Topic<'_>) -> Subscription {
        let (key, turn_of) = match topic {
            Topic::Freed(key) => (key, None),
            Topic::Turn(key, id) => (key, Some(*id)),
            Topic::Taken => return add_reader(&self.taken, topic),
            Topic::Granted => {
                self.watched.store(true, Ordering::Relaxed);
                return add_reader(&self.granted, topic);
            }
        };
        let (store, unsubscribed) = (self.this.clone(), key.clone());
        let (publisher, subscription) = Subscription::channel(topic.backlog(), move || {
            if let Some(store) = store.upgrade() {
                store.forget_closed(&unsubscribed);
            }
        });
        self.key_shard(key).readers.entry(key.clone()).or_default().add(turn_of, publisher);
        subscription
    }

    fn forget_closed(&self, key: &Key) {
        let mut shard = self.key_shard(key);
        if shard.readers.get_mut(key).is_some_and(|readers| !readers.forget_closed()) {
            shard.readers.remove(key);
        }
    }

    pub(super) fn force_release(&self, key: &Key, only: Option<Fence>) -> Vec<Record> {
        let mut shard = self.key_shard(key);
        let now = self.clock.timestamp();
        let (ended, tell) = self.change(&mut shard, key, now, |state| state.force_release(only, now));
        drop(shard);
        tell.now();
        for record in &ended {
            self.tell_taken(key, record.fence, Loss::ForceReleased);
        }
        ended
    }

    pub(super) fn sweep(&self) -> usize {
        (0..SHARDS).map(|shard| self.sweep_shard(shard)).sum()
    }

    pub(super) fn sweep_shard(&self, shard: usize) -> usize {
        let now = self.clock.timestamp();
        let swept = now.latest_swept();
        let mut shard = lock(&self.keys[shard % SHARDS]);
        let mut gone = Vec::new();
        shard.entries.retain(|_, entry| match entry {
            Entry::Plain(record) if record.expires_at <= swept => {
                gone.push(record.lock_id);
                false
            }
            Entry::Plain(_) => true,
            Entry::Busy(state) => {
                state.sweep(now);
                gone.append(&mut state.gone);
                !state.is_empty()
            }
        });
        for id in &gone {
            self.id_shard(id).remove(id);
        }
        gone.len()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.iter().map(|shard| lock(shard).entries.values().map(Entry::len).sum::<usize>()).sum()
    }

    fn key_of(&self, id: &LockId) -> Option<Key> {
        self.id_shard(id).get(id).cloned()
    }

    fn tell_taken(&self, key: &Key, fence: Fence, how: Loss) {
        tell(&lock(&self.taken), &Event::Taken { key: key.clone(), fence, how });
    }

    fn tell_granted(&self, request: &AcquireRequest, fence: Fence) {
        if self.watched.load(Ordering::Relaxed) {
            let (key, holder) = (request.key.clone(), Some(request.holder.clone()));
            tell(&lock(&self.granted), &Event::Granted { key, fence, holder });
        }
    }

    fn key_shard(&self, key: &Key) -> MutexGuard<'_, KeyShard> {
        lock(&self.keys[self.shard_of(key)])
    }

    fn id_shard(&self, id: &LockId) -> MutexGuard<'_, Map<LockId, Key>> {
        lock(&self.ids[self.shard_of(id)])
    }

    fn shard_of(&self, it: &impl Hash) -> usize {
        // The remainder is below the number of shards.
        #[allow(clippy::cast_possible_truncation)]
        let shard = (self.hasher.hash_one(it) % SHARDS as u64) as usize;
        shard
    }
}

fn tell(readers: &[Publisher], event: &Event) {
    for reader in readers {
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
