use async_trait::async_trait;
use leasehold::LockId;

/// A lock that the other library of the same layout wrote, as far as a test can see.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// What it locks.
    pub key: String,
    /// Its lock id.
    pub id: LockId,
    /// Its fence.
    pub fence: u64,
    /// Since when it is held, in milliseconds.
    pub acquired_at: u64,
    /// Until when, in milliseconds.
    pub expires_at: u64,
}

/// A process that uses the other library of the same layout.
#[async_trait]
pub trait OtherLibrary: Send {
    /// Takes the lock of `key` for some milliseconds and returns its fence, unless it is held.
    async fn acquire(&mut self, key: &str, id: &LockId, ttl: u64) -> Option<u64>;

    /// Returns whether the lock was held with this id.
    async fn extend(&mut self, id: &LockId, ttl: u64) -> bool;

    /// Returns whether the lock was held with this id.
    async fn release(&mut self, id: &LockId) -> bool;
}
