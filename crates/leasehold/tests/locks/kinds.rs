//! Readers and writers, and permits.

use std::time::Duration;

use leasehold::testing::Fault;
use leasehold::{ErrorCode, Loss, Mode, Operation, Owner};
use test_support::{eventually, soon};

use crate::support::World;

#[tokio::test]
async fn readers_go_in_together_and_behind_a_writer_in_order() {
    let world = World::new();
    let (one, two) = (world.locks(), world.rival());
    let first = one.shared("k").acquire().await.unwrap();
    let second = two.shared("k").acquire().await.unwrap();
    assert!(first.fence() < second.fence(), "each has a fence of its own");
    let writer = tokio::spawn({
        let locks = world.rival();
        async move { locks.exclusive("k").wait_forever().acquire().await.unwrap() }
    });
    eventually("the writer waits", async || two.waiters("k").await.unwrap().len() == 1).await;
    assert!(two.shared("k").try_acquire().await.unwrap().is_none(), "a reader does not pass a writer");
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let locks = world.rival();
            tokio::spawn(async move { locks.shared("k").wait_forever().acquire().await.unwrap() })
        })
        .collect();
    eventually("the readers wait", async || two.waiters("k").await.unwrap().len() == 4).await;
    first.release().await.unwrap();
    assert!(!writer.is_finished());
    second.release().await.unwrap();
    let writer = soon("the writer", writer).await.unwrap();
    assert_eq!(two.holders("k").await.unwrap().len(), 1);
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(soon("all readers", reader).await.unwrap());
    }
    let modes: Vec<_> = two.holders("k").await.unwrap().iter().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Mode::Shared; 3]);
}

#[tokio::test]
async fn a_writer_behind_readers_of_its_own_process_stands_in_line_like_all() {
    let world = World::new();
    let locks = world.locks();
    let reader = locks.shared("k").acquire().await.unwrap();
    let writer = tokio::spawn({
        let locks = locks.clone();
        async move { locks.exclusive("k").wait_forever().acquire().await.unwrap() }
    });
    eventually("it stands in line", async || world.rival().waiters("k").await.unwrap().len() == 1).await;
    assert!(world.rival().shared("k").try_acquire().await.unwrap().is_none());
    reader.release().await.unwrap();
    drop(soon("the writer", writer).await.unwrap());
}

#[tokio::test]
async fn permits_have_slots_and_the_limit_is_each_requests_own() {
    let world = World::new();
    let locks = world.rival();
    let mut permits = Vec::new();
    for slot in 0..3 {
        let permit = locks.permit("gpu", 3).try_acquire().await.unwrap().unwrap();
        assert_eq!((permit.slot(), permit.mode()), (Some(slot), Mode::Permit { of: 3.try_into().unwrap() }));
        permits.push(permit);
    }
    assert!(locks.permit("gpu", 3).try_acquire().await.unwrap().is_none());
    let fourth = locks.permit("gpu", 5).try_acquire().await.unwrap().unwrap();
    assert_eq!(fourth.slot(), Some(3));
    permits.remove(1).release().await.unwrap();
    assert!(locks.permit("gpu", 3).try_acquire().await.unwrap().is_none(), "three are still held");
    let again = locks.permit("gpu", 4).try_acquire().await.unwrap().unwrap();
    assert_eq!(again.slot(), Some(1), "the lowest that is free");
    assert!(locks.lock("gpu").try_acquire().await.unwrap().is_none(), "an exclusive lock waits for all");
}

#[tokio::test]
async fn grants_that_are_answered_in_the_other_order_are_no_broken_store() {
    let world = World::new();
    let locks = world.locks();
    world.faults.next(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(50)));
    let slow = tokio::spawn({
        let locks = locks.clone();
        async move { locks.permit("k", 2).try_acquire().await.unwrap().unwrap() }
    });
    eventually("it is granted and does not know", async || world.is_locked("k").await).await;
    let quick = locks.permit("k", 2).try_acquire().await.unwrap().unwrap();
    let slow = slow.await.unwrap();
    assert!(slow.fence() < quick.fence());
}

#[tokio::test]
async fn every_hold_of_a_key_is_renewed_and_lost_by_itself() {
    let world = World::new();
    let locks = world.locks();
    let first = locks.shared("k").acquire().await.unwrap();
    let second = locks.shared("k").acquire().await.unwrap();
    eventually("it listens", async || world.faults.answers(Operation::Subscribe) == 1).await;
    let ended = world.rival().force_release_grant("k", first.fence()).await.unwrap().unwrap();
    assert_eq!(ended.fence, first.fence());
    assert_eq!(soon("it is told", first.lost()).await, Loss::ForceReleased);
    for _ in 0..5 {
        world.clock.advance(Duration::from_secs(10));
        eventually("it is renewed", async || second.remaining() > Duration::from_secs(25)).await;
    }
    assert!(world.rival().force_release_grant("k", first.fence()).await.unwrap().is_none());
    assert_eq!(world.rival().force_release("k").await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_owner_enters_again_what_is_not_stronger_and_never_waits_for_itself() {
    let world = World::new();
    let (locks, flow) = (world.locks(), Owner::new());
    let writer = locks.exclusive("w").reentrant(&flow).acquire().await.unwrap();
    let nested = locks.shared("w").reentrant(&flow).acquire().await.unwrap();
    assert_eq!(nested.fence(), writer.fence());
    let reader = locks.shared("r").reentrant(&flow).acquire().await.unwrap();
    let nested = locks.shared("r").reentrant(&flow).acquire().await.unwrap();
    assert_eq!(nested.fence(), reader.fence());
    let upgrade = locks.exclusive("r").reentrant(&flow).wait_forever().acquire().await.unwrap_err();
    assert_eq!(upgrade.code(), ErrorCode::InvalidArgument);
    let upgrade = locks.permit("r", 2).reentrant(&flow).try_acquire().await.unwrap_err();
    assert_eq!(upgrade.code(), ErrorCode::InvalidArgument);
    nested.release().await.unwrap();
    assert!(reader.loss().is_none(), "the failed requests entered nothing");
    reader.release().await.unwrap();
    assert!(!world.is_locked("r").await);
}

#[tokio::test]
async fn an_owner_that_reads_twice_does_not_wait_for_what_it_still_reads() {
    let world = World::new();
    let (locks, flow) = (world.locks(), Owner::new());
    world.faults.always(Operation::Acquire, Fault::DelayAfter(Duration::from_millis(20)));
    let read = || locks.shared("k").reentrant(&flow).try_acquire();
    for goes_first in [0, 1] {
        let (one, other) = tokio::join!(read(), read());
        let mut readers = vec![one.unwrap().unwrap(), other.unwrap().unwrap()];
        assert_ne!(readers[0].fence(), readers[1].fence(), "both were granted before either knew");
        readers.remove(goes_first).release().await.unwrap();
        let upgrade = locks.exclusive("k").reentrant(&flow).wait_forever().acquire();
        let upgrade = soon("an answer", upgrade).await.unwrap_err();
        assert_eq!(upgrade.code(), ErrorCode::InvalidArgument);
        readers.remove(0).release().await.unwrap();
        assert!(locks.exclusive("k").reentrant(&flow).try_acquire().await.unwrap().is_some());
        world.freed("k").await;
    }
}

#[tokio::test]
async fn no_permits_are_refused() {
    let world = World::new();
    let error = world.locks().permit("k", 0).try_acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

/// One that is kept by asking all the time, and lost to a slow answer.
#[tokio::test]
async fn a_place_of_less_than_a_second_is_refused() {
    let world = World::new();
    for lease in [Duration::ZERO, Duration::from_millis(999)] {
        let error = world.locks().lock("k").fair_lease(lease).try_acquire().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    assert!(world.locks().lock("k").fair_lease(Duration::from_secs(1)).try_acquire().await.unwrap().is_some());
}
