//! A handle among several runtimes, of which some stand still, and outside of any.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::backend::Backend;
use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{Locks, Operation};
use test_support::{eventually, key};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_waiter_whose_runtime_stands_still_keeps_nobody_else_from_a_free_lock() {
    let locks = Locks::new(Memory::new());
    let (still, other) = (runtime(), runtime());
    let guard = still.block_on(locks.lock("k").acquire()).unwrap();
    let first_in_line = still.spawn(locks.lock("k").wait_forever().acquire());
    still.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    other.block_on(guard.release()).unwrap();
    let second = other.block_on(locks.lock("k").wait(Duration::from_secs(20)).acquire()).unwrap();
    other.block_on(second.release()).unwrap();
    drop(still.block_on(first_in_line).unwrap().unwrap());
}

#[test]
fn a_store_that_needs_no_runtime_can_be_locked_without_one() {
    let locks = Locks::new(Memory::new());
    let mut acquire = std::pin::pin!(locks.lock("k").try_acquire());
    let Poll::Ready(acquired) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the memory store answers at once");
    };
    drop(acquired.unwrap().expect("the lock is free"));
}

#[tokio::test]
async fn a_subscription_that_hangs_hides_no_release_in_the_same_process() {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::new(store);
    let guard = locks.lock("k").acquire().await.unwrap();
    faults.always(Operation::Subscribe, Fault::HangBefore);
    let waiter = tokio::spawn(locks.lock("k").wait_forever().acquire());
    eventually("it waits", async || faults.most_at_once(Operation::Subscribe) >= 1).await;
    guard.release().await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(5), waiter).await;
    drop(waited.expect("before the subscription is given up").unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn waiting_does_not_hurry_a_clock_that_is_paused() {
    let locks = Locks::new(Memory::new());
    let guard = locks.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("k").wait(Duration::from_secs(30)).acquire());
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    drop(waiter.await.unwrap().expect("the lock was free long before the time was over"));
}

#[test]
fn shutdown_gives_back_what_was_cancelled_on_a_runtime_that_stands_still() {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    faults.always(Operation::Acquire, Fault::HangAfter);
    faults.always(Operation::Release, Fault::DelayBefore(Duration::from_millis(20)));
    let locks = Locks::builder(store).release_timeout(Duration::from_secs(2)).build();
    let (still, other) = (runtime(), runtime());
    still.block_on(async {
        let acquire = locks.lock("k").ttl(Duration::from_secs(600)).acquire();
        assert!(tokio::time::timeout(Duration::from_millis(50), acquire).await.is_err());
    });
    other.block_on(async {
        assert!(memory.is_locked(&key("k")).await.unwrap(), "it was granted, and nobody heard of it");
        locks.shutdown().await.unwrap();
        assert!(!memory.is_locked(&key("k")).await.unwrap(), "it is given back before shutdown returns");
    });
    drop(still);
}
