//! A handle works from any runtime, whatever the other runtimes that use it are doing.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Backend, Event, Topic};
use leasehold::{Key, LockState};
use tokio::runtime::{Builder, Runtime};

use super::context::{Context, EVENT_TIMEOUT, LONG, event, granted, refused, released, request, ttl};
use super::group;

group!("runtimes":
    a_handle_outlives_the_runtimes_it_was_used_on,
    a_runtime_that_stands_still_holds_nobody_up,
    runtimes_work_side_by_side,
    a_guard_outlives_the_runtime_it_was_acquired_on,
    a_waiter_is_woken_while_another_runtime_stands_still,
);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs `future` on `runtime`, on a thread of its own, and gives the runtime back: it stands still
/// then.
async fn drive<T: Send + 'static>(runtime: Runtime, future: impl Future<Output = T> + Send + 'static) -> (Runtime, T) {
    let driven = tokio::task::spawn_blocking(move || {
        let value = runtime.block_on(async { tokio::time::timeout(EVENT_TIMEOUT, future).await });
        (runtime, value.expect("an answer within five seconds"))
    });
    driven.await.expect("the runtime is driven to the end")
}

/// Lets a runtime go. That may not happen in a task.
fn end(runtime: Runtime) {
    std::thread::spawn(move || drop(runtime)).join().expect("the runtime ends");
}

/// Takes a lock and gives it back, and has a subscription meanwhile.
async fn use_once(store: Arc<dyn Backend>, key: Key) {
    let mut freed = store.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
    let taken = request(&key, LONG);
    granted(&store, &taken).await;
    refused(&store, &request(&key, LONG)).await;
    released(&store, &taken.lock_id).await;
    if store.capabilities().wake_ups {
        assert!(matches!(event(&mut freed).await, Event::Freed | Event::Missed));
    }
}

async fn a_handle_outlives_the_runtimes_it_was_used_on(cx: &Context) {
    for round in 0..3 {
        let key = cx.key(&format!("round-{round}"));
        let (used, ()) = drive(runtime(), use_once(cx.backend.clone(), key)).await;
        end(used);
        use_once(cx.backend.clone(), cx.key(&format!("here-{round}"))).await;
    }
}

async fn a_runtime_that_stands_still_holds_nobody_up(cx: &Context) {
    let (still, ()) = drive(runtime(), use_once(cx.backend.clone(), cx.key("first"))).await;
    let (other, ()) = drive(runtime(), use_once(cx.backend.clone(), cx.key("second"))).await;
    use_once(cx.backend.clone(), cx.key("third")).await;
    let (still, ()) = drive(still, use_once(cx.backend.clone(), cx.key("fourth"))).await;
    end(still);
    end(other);
}

async fn runtimes_work_side_by_side(cx: &Context) {
    const RUNTIMES: usize = 4;
    let work = |worker: usize| {
        let (store, key) = (cx.backend.clone(), cx.key(&format!("worker-{worker}")));
        tokio::spawn(drive(runtime(), async move {
            for _ in 0..5 {
                use_once(store.clone(), key.clone()).await;
            }
        }))
    };
    let workers: Vec<_> = (0..RUNTIMES).map(work).collect();
    for worker in workers {
        end(worker.await.expect("a worker ends").0);
    }
}

async fn a_guard_outlives_the_runtime_it_was_acquired_on(cx: &Context) {
    let (locks, _) = cx.locks();
    let acquire = locks.lock(cx.key("guarded")).ttl(ttl(LONG)).acquire();
    let (used, guard) = drive(runtime(), acquire).await;
    end(used);
    let guard = guard.expect("the lock is free");
    guard.extend(ttl(LONG)).await.expect("the keeper has a runtime of its own");
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.expect("the lock is held");
    assert!(!cx.is_locked(&cx.key("guarded")).await);
}

async fn a_waiter_is_woken_while_another_runtime_stands_still(cx: &Context) {
    let key = cx.key("waited-for");
    let (locks, _) = cx.locks();
    // The first who waits, and so the first who wants to be woken, is on a runtime that then stands
    // still.
    let holder = cx.take(&key, LONG).await;
    let waiting = locks.lock(&key).wait_forever().acquire();
    let (still, gave_up) = drive(runtime(), tokio::time::timeout(Duration::from_millis(50), waiting)).await;
    assert!(gave_up.is_err(), "the lock is held");
    let waiter = tokio::spawn(locks.lock(&key).wait_forever().acquire());
    tokio::time::sleep(Duration::from_millis(50)).await;
    released(&cx.backend, &holder.lock_id).await;
    if !cx.backend.capabilities().wake_ups {
        cx.pass(3_000).await;
    }
    let woken = tokio::time::timeout(EVENT_TIMEOUT, waiter).await.expect("it is woken").expect("the waiter ends");
    woken.expect("the lock is free").release().await.expect("the lock is held");
    end(still);
}
