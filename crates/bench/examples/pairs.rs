//! Takes and releases locks in a store, for those who measure the server: `pairs URL PAIRS TASKS`.

#![allow(clippy::unwrap_used, missing_docs)]

use leasehold::backend::{Acquire, AcquireRequest, Release};
use leasehold::{Key, LockId, Locks, Ttl};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, url, pairs, tasks] = &arguments[..] else { panic!("usage: pairs URL PAIRS TASKS") };
    let (pairs, tasks): (usize, usize) = (pairs.parse().unwrap(), tasks.parse().unwrap());
    let locks = Locks::connect(url).await.unwrap();
    let task = |number: usize| {
        let store = locks.backend().clone();
        let request = AcquireRequest::new(
            Key::new(&format!("payment:order-{number:07}")).unwrap(),
            LockId::random().unwrap(),
            Ttl::default(),
        );
        tokio::spawn(async move {
            for _ in 0..pairs / tasks {
                let Acquire::Granted(_) = store.acquire(&request).await.unwrap() else { panic!("held") };
                let Release::Released = store.release(&request.lock_id).await.unwrap() else { panic!("absent") };
            }
        })
    };
    for task in (0..tasks).map(task).collect::<Vec<_>>() {
        task.await.unwrap();
    }
}
