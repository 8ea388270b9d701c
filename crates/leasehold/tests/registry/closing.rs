//! The end of a program waits for what the stores have to put in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Error;
use leasehold::backend::Backend;
use leasehold::memory::Memory;
use leasehold::stores::{StoreDescriptor, StoreDriver, register, wait_until_closed};

/// A store of another crate that is closed when it is told to be.
#[derive(Debug)]
struct Lingering;

static OPEN: AtomicBool = AtomicBool::new(false);

#[async_trait]
impl StoreDriver for Lingering {
    async fn connect(&self, _: &str) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Memory::new()))
    }

    fn wait_until_closed(&self, _: Duration) -> bool {
        !OPEN.load(Ordering::Relaxed)
    }
}

/// One test, because all the stores of the process are waited for.
#[tokio::test]
async fn every_store_is_waited_for() {
    assert!(wait_until_closed(Duration::ZERO), "nothing was opened");
    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let locks = leasehold::Locks::connect(&url).await.unwrap();
        assert!(!wait_until_closed(Duration::from_millis(1)), "a file is open");
        drop(locks);
        assert!(wait_until_closed(Duration::from_secs(20)));
    }
    let lingering = StoreDescriptor::new("Lingering", &["lingering"], "lingering:", &Lingering);
    register(lingering).unwrap();
    assert!(wait_until_closed(Duration::ZERO));
    OPEN.store(true, Ordering::Relaxed);
    assert!(!wait_until_closed(Duration::ZERO), "a store of another crate is open");
}
