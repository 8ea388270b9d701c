use serde::{Deserialize, Serialize};

use super::Locks;
use crate::backend::{Inspected, LookupBy, Record, Subscription, Topic, Waiter};
use crate::{Error, Fence, HashId, Holder, Key, ListRequest, LockId, Loss, Metadata, Mode, Operation, Timestamp};

/// What is known of a held lock, safe to log: the key and the lock id only as hashes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The hash of the key.
    pub key_hash: HashId,
    /// The hash of the lock id.
    pub lock_id_hash: HashId,
    /// The number of the grant.
    pub fence: Fence,
    /// Since when it is held, by the store's clock.
    pub acquired_at: Timestamp,
    /// When it ends unless extended, by the store's clock.
    pub expires_at: Timestamp,
    /// Who holds it, if a name was left.
    pub holder: Option<Holder>,
    /// Notes stored with the lock.
    pub metadata: Metadata,
    /// How it is held.
    #[serde(default)]
    pub mode: Mode,
    /// The number of the permit, if it is one.
    #[serde(default)]
    pub slot: Option<u16>,
}

impl From<Record> for LockInfo {
    fn from(record: Record) -> Self {
        Self {
            key_hash: record.key.hash_id(),
            lock_id_hash: record.lock_id.hash_id(),
            fence: record.fence,
            acquired_at: record.acquired_at,
            expires_at: record.expires_at,
            holder: record.holder,
            metadata: record.metadata,
            mode: record.mode,
            slot: record.slot,
        }
    }
}

/// What is known of somebody who stands in line, safe to log: the key and the lock id only as
/// hashes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The hash of the key.
    pub key_hash: HashId,
    /// The hash of the id that the lock will have.
    pub lock_id_hash: HashId,
    /// How the lock is wanted.
    pub mode: Mode,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// When the place is given up unless the waiter asks again, by the store's clock.
    pub until: Timestamp,
    /// Who waits, if a name was left.
    pub holder: Option<Holder>,
    /// Notes that will be stored with the lock.
    pub metadata: Metadata,
}

impl From<Waiter> for WaiterInfo {
    fn from(waiter: Waiter) -> Self {
        Self {
            key_hash: waiter.key.hash_id(),
            lock_id_hash: waiter.lock_id.hash_id(),
            mode: waiter.mode,
            since: waiter.since,
            until: waiter.until,
            holder: waiter.holder,
            metadata: waiter.metadata,
        }
    }
}

/// Who holds a key and who waits for it, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyInfo {
    /// Who holds it, the oldest grant first.
    pub holders: Vec<LockInfo>,
    /// Who stands in line for it, the first in line first. Of a very long line only its beginning.
    pub waiters: Vec<WaiterInfo>,
}

/// A held lock in a listing: with its key, because that is what a listing is for, but without the
/// lock id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Locked {
    /// What is locked.
    pub key: Key,
    /// Everything else.
    #[serde(flatten)]
    pub info: LockInfo,
    /// How many stand in line for the key.
    #[serde(default)]
    pub waiting: u32,
}

impl Locked {
    /// What is known of the lock of `key`.
    pub fn new(key: Key, info: LockInfo) -> Self {
        Self { key, info, waiting: 0 }
    }

    /// How many stand in line for the key.
    #[must_use]
    pub fn with_waiting(mut self, waiting: u32) -> Self {
        self.waiting = waiting;
        self
    }
}

/// One page of held locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LocksPage {
    /// The locks.
    pub locks: Vec<Locked>,
    /// Where the next page starts, if there is one: for [`ListRequest::with_cursor`].
    pub next: Option<String>,
}

/// Looking at locks, for people and dashboards. What these calls return may be outdated when it
/// arrives: never decide by it whether to touch what a lock protects. None of them writes, except
/// `force_release`. All are cancel-safe, and fail with the store's error, or with
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if what they are given is no key.
impl Locks {
    /// Whether somebody holds the lock of `key`.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn is_locked<K>(&self, key: K) -> Result<bool, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = key.try_into().map_err(Into::into)?;
        self.call(Operation::IsLocked, self.backend().is_locked(&key)).await
    }

    /// The lock held on `key`, safe to log: the oldest, if several hold it.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn get_by_key<K>(&self, key: K) -> Result<Option<LockInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Ok(self.get_by_key_raw(key).await?.map(LockInfo::from))
    }

    /// The lock with this id, safe to log.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn get_by_id(&self, id: &LockId) -> Result<Option<LockInfo>, Error> {
        Ok(self.get_by_id_raw(id).await?.map(LockInfo::from))
    }

    /// The lock held on `key`, with its id: whoever sees it can end the lock.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn get_by_key_raw<K>(&self, key: K) -> Result<Option<Record>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = key.try_into().map_err(Into::into)?;
        self.call(Operation::Lookup, self.backend().lookup(LookupBy::Key(&key))).await
    }

    /// The lock with this id, with its key.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn get_by_id_raw(&self, id: &LockId) -> Result<Option<Record>, Error> {
        self.call(Operation::Lookup, self.backend().lookup(LookupBy::Id(id))).await
    }

    /// Whether `id` still holds its lock. Not a guard: extend and release check ownership
    /// themselves.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn owns(&self, id: &LockId) -> Result<bool, Error> {
        Ok(self.get_by_id_raw(id).await?.is_some())
    }

    /// Who holds `key`, the oldest grant first: one, or several if they share it or have permits.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn holders<K>(&self, key: K) -> Result<Vec<LockInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Ok(self.inspect(key).await?.holders)
    }

    /// Who stands in line for `key`, the first in line first.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn waiters<K>(&self, key: K) -> Result<Vec<WaiterInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Ok(self.inspect(key).await?.waiters)
    }

    /// Who holds `key` and who stands in line for it.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let _one = locks.shared("catalogue").acquire().await?;
    /// let _another = locks.shared("catalogue").acquire().await?;
    /// let found = locks.inspect("catalogue").await?;
    /// assert_eq!((found.holders.len(), found.waiters.len()), (2, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn inspect<K>(&self, key: K) -> Result<KeyInfo, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = key.try_into().map_err(Into::into)?;
        let Inspected { holders, waiters } = self.call(Operation::Lookup, self.backend().inspect(&key)).await?;
        Ok(KeyInfo {
            holders: holders.into_iter().map(LockInfo::from).collect(),
            waiters: waiters.into_iter().map(WaiterInfo::from).collect(),
        })
    }

    /// One page of the held locks whose key starts with a prefix: text, or a [`ListRequest`] for
    /// more than the first page.
    ///
    /// ```
    /// # use leasehold::memory::Memory;
    /// # use leasehold::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = Locks::new(Memory::new());
    /// let _guard = locks.lock("payment:42").metadata([("order", "A-17")]).acquire().await?;
    /// let page = locks.list("payment:").await?;
    /// assert_eq!(page.locks[0].key.as_str(), "payment:42");
    /// assert!(page.next.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn list(&self, request: impl Into<ListRequest>) -> Result<LocksPage, Error> {
        let page = self.call(Operation::List, self.backend().list(&request.into())).await?;
        let waiting = |key: &Key| page.waiting.get(key).copied().unwrap_or_default();
        let locked = |record: Record| {
            let (key, waiting) = (record.key.clone(), waiting(&record.key));
            Locked::new(key, record.into()).with_waiting(waiting)
        };
        Ok(LocksPage { locks: page.records.into_iter().map(locked).collect(), next: page.next })
    }

    /// Locks as they are granted, to whomever: [`Event::Granted`](crate::backend::Event::Granted),
    /// also of those that are given back at once. Events are hints, which may be lost or forged; a
    /// store that cannot push yields none, nor does one tell of grants to other libraries. It needs
    /// the right to listen, and in a SQLite file to write.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn grants(&self) -> Result<Subscription, Error> {
        self.call(Operation::Subscribe, self.backend().subscribe(Topic::Granted)).await
    }

    /// The time by which the store decides about leases: what to compare
    /// [`acquired_at`](LockInfo::acquired_at) and [`expires_at`](LockInfo::expires_at) with.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        self.call(Operation::Lookup, self.backend().now()).await
    }

    /// Ends whatever locks are held on `key`, and tells which they were. For operators: the holders
    /// are told, but may go on working for a moment, and only a check of the fence protects against
    /// that.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn force_release<K>(&self, key: K) -> Result<Vec<LockInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        self.end(key.try_into().map_err(Into::into)?, None).await
    }

    /// Ends the lock of one grant, and tells which it was, if it is still held: whoever was seen
    /// with this fence, and nobody who came later or holds the key as well.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn force_release_grant<K>(&self, key: K, fence: Fence) -> Result<Option<LockInfo>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Ok(self.end(key.try_into().map_err(Into::into)?, Some(fence)).await?.pop())
    }

    async fn end(&self, key: Key, only: Option<Fence>) -> Result<Vec<LockInfo>, Error> {
        let ended = self.call(Operation::ForceRelease, self.backend().force_release(&key, only)).await?;
        let core = &self.inner.core;
        for record in &ended {
            core.taken(&key, record.fence, Loss::ForceReleased);
        }
        core.queue.wake(&key);
        Ok(ended.into_iter().map(LockInfo::from).collect())
    }
}
