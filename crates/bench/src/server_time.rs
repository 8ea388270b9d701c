//! Redis' own account of what an operation of the store costs it.

use leasehold::backend::{Acquire, AcquireRequest, Backend};
use leasehold::redis::Redis;
use leasehold::{Key, LockId, Ttl};

use crate::spread::digits;

/// A sentence with the time of each operation, by `INFO commandstats`.
pub fn redis(server: &test_servers::Redis, calls: u32) -> String {
    eprintln!("compare: redis: time of the server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(Redis::connect(&server.url())).unwrap();
    let request = || {
        let key = Key::new("payment:order-0000042").unwrap();
        AcquireRequest::new(key, LockId::random().unwrap(), Ttl::default())
    };
    let measure = |operation: &mut dyn FnMut()| {
        operation();
        server.cli(&["CONFIG", "RESETSTAT"]);
        (0..calls).for_each(|_| operation());
        let statistics = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
        let micros = statistics.split(',').find_map(|field| field.strip_prefix("usec=")?.parse::<f64>().ok());
        digits(micros.unwrap_or_default() / f64::from(calls))
    };
    let held = request();
    let pair = measure(&mut || {
        runtime.block_on(async {
            let Acquire::Granted(grant) = store.acquire(&held).await.unwrap() else { panic!("held") };
            store.release(&grant.lock_id).await.unwrap();
        });
    });
    runtime.block_on(async { drop(store.acquire(&held).await.unwrap()) });
    let extend = measure(&mut || {
        runtime.block_on(async { store.extend(&held.lock_id, held.ttl).await.unwrap() });
    });
    let refused = measure(&mut || runtime.block_on(async { drop(store.acquire(&request()).await.unwrap()) }));
    let look = measure(&mut || {
        runtime.block_on(async { store.is_locked(&held.key).await.unwrap() });
    });
    runtime.block_on(async { store.release(&held.lock_id).await.unwrap() });
    format!(
        "By its own account the server spends {pair} µs on an acquire and its release, {extend} µs on an extend, \
         {refused} µs to say that somebody else has the lock, {look} µs to say whether anybody has it."
    )
}
