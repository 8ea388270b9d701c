use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::store::Store;
use crate::sync::lock;

/// A store's shards are swept in turns, so that no caller ever waits for more than one shard's
/// sweep.
const TURN: Duration = Duration::from_millis(100);

struct Sweeper {
    stores: Mutex<Vec<Weak<Store>>>,
    arrived: Condvar,
}

/// Has `store` swept for as long as it lives, by one thread for all the stores of the process.
pub(super) fn register(store: &Arc<Store>) {
    static SWEEPER: OnceLock<Option<&'static Sweeper>> = OnceLock::new();
    let sweeper = SWEEPER.get_or_init(|| {
        let sweeper: &'static Sweeper =
            Box::leak(Box::new(Sweeper { stores: Mutex::default(), arrived: Condvar::new() }));
        // Without the thread dead records stay until their keys are used again: a larger map,
        // nothing worse.
        let thread = thread::Builder::new().name("leasehold-sweep".into()).spawn(|| sweeper.run());
        thread.ok().map(|_| sweeper)
    });
    if let Some(sweeper) = sweeper {
        lock(&sweeper.stores).push(Arc::downgrade(store));
        sweeper.arrived.notify_one();
    }
}

impl Sweeper {
    fn run(&self) {
        for turn in 0usize.. {
            let stores = self.wait_for_stores();
            for store in stores {
                store.sweep_shard(turn);
            }
            thread::sleep(TURN);
        }
    }

    fn wait_for_stores(&self) -> Vec<Arc<Store>> {
        let mut stores = lock(&self.stores);
        loop {
            stores.retain(|store| store.strong_count() > 0);
            if !stores.is_empty() {
                return stores.iter().filter_map(Weak::upgrade).collect();
            }
            stores = self.arrived.wait(stores).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
