//! What the suite needs to know about the store under test.

mod ready_made;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::Backend;
use leasehold::{Key, Locks, LocksBuilder, Timestamp};

pub use ready_made::{ManualHarness, RealHarness};

/// A store under test, fresh for each case.
///
/// [`ManualHarness`] and [`RealHarness`] serve most stores; implement the trait when yours needs
/// more, for instance a server that goes away with the harness.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The store.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Another handle on the same store that shares nothing with the first one in this process:
    /// what another program would have.
    fn peer(&self) -> Arc<dyn Backend>;

    /// What all keys of this harness start with, so that cases that share a server do not meet. See
    /// [`unique_namespace`].
    fn namespace(&self) -> &str;

    /// The time by the store's clock. For a server on this host, this host's clock.
    fn now(&self) -> Timestamp;

    /// Lets `time` pass on the store's clock: moves a manual clock, sleeps for a real one.
    async fn pass(&self, time: Duration);

    /// How far [`now`](Harness::now) may be from the store's clock, in either direction. Checks of
    /// times allow for it. Zero is right for a manual clock.
    fn clock_slack(&self) -> Duration {
        Duration::from_millis(50)
    }

    /// Makes a handle on `store`, one of this harness's or a layer around it. A harness with a
    /// manual clock gives the handle that clock.
    fn locks(&self, store: Arc<dyn Backend>) -> LocksBuilder {
        Locks::builder(store)
    }

    /// The key `name` within this harness.
    ///
    /// # Panics
    ///
    /// If the namespace and `name` together do not make a valid key.
    fn key(&self, name: &str) -> Key {
        Key::new(&format!("{}{name}", self.namespace())).expect("a namespace and a name are a valid key")
    }
}

/// A namespace that no other harness has, on however many machines: `c-` and 16 random letters and
/// digits, and a colon.
pub fn unique_namespace() -> String {
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
    format!("c-{random}:")
}
