use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;

use super::Inner;
use super::hold::Hold;
use crate::Key;
use crate::sync::lock;

/// One flow of work that may take the same lock again while it holds it.
///
/// Locks are not reentrant by default: a second acquire of the same key waits, even in the same
/// task. Pass the same owner to both with [`reentrant`](crate::LockRequest::reentrant), and the
/// second acquire gets a nested guard on the same lease at once; its other options do not matter
/// then, except for how it wants the key: under an exclusive lock anything is nested, under a
/// shared one or a permit the same again, and the rest is `InvalidArgument` at once, because the
/// owner would wait for itself. The store sees one lock, which is released with the last of the
/// guards. Clones are the same owner; different owners exclude each other.
///
/// ```
/// use leasehold::memory::Memory;
/// use leasehold::{Locks, Owner};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let locks = Locks::new(Memory::new());
/// let flow = Owner::new();
/// let outer = locks.lock("account:1").reentrant(&flow).acquire().await?;
/// let inner = locks.lock("account:1").reentrant(&flow).acquire().await?;
/// assert_eq!(inner.fence(), outer.fence());
///
/// let other = Owner::new();
/// assert!(locks.lock("account:1").reentrant(&other).try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Flow>);

#[derive(Default)]
struct Flow {
    held: Mutex<HashMap<(HandleId, Key), Holds>>,
    /// Something was added to `held`.
    got: Notify,
}

/// Readers and permits of one key may be several.
type Holds = Vec<Weak<Hold>>;

/// Tells `Locks` handles apart, by address: an owner may be used with several stores.
type HandleId = usize;

impl Owner {
    /// A new owner, different from all others.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lease this owner holds on `key` through `locks`, entered once more.
    pub(super) fn reenter(&self, locks: &Arc<Inner>, key: &Key) -> Option<Arc<Hold>> {
        let held = lock(&self.0.held);
        held.get(&(handle_id(locks), key.clone()))?.iter().filter_map(Weak::upgrade).find(|hold| hold.enter())
    }

    /// Waits until another task of this owner has the lock of `key`, and enters it.
    pub(super) async fn reentered(&self, locks: &Arc<Inner>, key: &Key) -> Arc<Hold> {
        loop {
            let mut got = std::pin::pin!(self.0.got.notified());
            got.as_mut().enable();
            if let Some(hold) = self.reenter(locks, key) {
                return hold;
            }
            got.await;
        }
    }

    pub(super) fn remember(&self, locks: &Arc<Inner>, hold: &Arc<Hold>) {
        let mut held = lock(&self.0.held);
        held.retain(|_, holds| {
            holds.retain(|hold| hold.strong_count() > 0);
            !holds.is_empty()
        });
        held.entry((handle_id(locks), hold.key.clone())).or_default().push(Arc::downgrade(hold));
        drop(held);
        self.0.got.notify_waiters();
    }
}

fn handle_id(locks: &Arc<Inner>) -> HandleId {
    Arc::as_ptr(locks) as usize
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("held", &lock(&self.0.held).len()).finish()
    }
}
