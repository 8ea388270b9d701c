//! rslock, which has no fences, holders, wake-ups or idempotent requests.

use async_trait::async_trait;
use rslock::{Lock, LockManager};

use super::{Held, LEASE, Peer};

pub(super) struct Rslock(LockManager);

struct Locked(LockManager, Lock);

impl Rslock {
    pub(super) fn open(url: &str) -> Self {
        Self(LockManager::new(vec![url.to_owned()]))
    }
}

#[async_trait]
impl Peer for Rslock {
    async fn acquire(&self, key: &str, wait: bool) -> Box<dyn Held> {
        // Its way to wait: to look again and again, with a pause of 200 ms.
        let lock = if wait {
            self.0.acquire_no_guard(key, LEASE).await.unwrap()
        } else {
            self.0.lock(key, LEASE).await.unwrap()
        };
        Box::new(Locked(self.0.clone(), lock))
    }

    fn version(&self) -> String {
        "rslock 0.10".to_owned()
    }
}

#[async_trait]
impl Held for Locked {
    async fn release(self: Box<Self>) {
        self.0.unlock(&self.1).await;
    }
}
