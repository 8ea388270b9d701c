//! Taking a lock again while holding it.

use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::{Locks, Loss, Operation, Owner};
use test_support::eventually;

use crate::support::{TTL, World};

#[tokio::test]
async fn without_an_owner_a_second_acquire_is_kept_out_even_in_the_same_task() {
    let world = World::new();
    let locks = world.locks();
    let _guard = locks.lock("k").acquire().await.unwrap();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn the_same_owner_enters_again_and_the_store_sees_one_lock() {
    let world = World::new();
    let locks = world.locks();
    let owner = Owner::new();
    let outer = locks.lock("k").reentrant(&owner).acquire().await.unwrap();
    let inner = locks.lock("k").reentrant(&owner.clone()).try_acquire().await.unwrap().unwrap();
    let innermost = locks.lock("k").reentrant(&owner).acquire().await.unwrap();
    assert_eq!((inner.fence(), innermost.lock_id()), (outer.fence(), outer.lock_id()));
    assert_eq!(world.faults.calls(Operation::Acquire), 1);

    outer.release().await.unwrap();
    drop(innermost);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(world.is_locked("k").await, "one guard is left");
    inner.release().await.unwrap();
    assert!(!world.is_locked("k").await);
    assert_eq!(world.faults.calls(Operation::Release), 1);
}

#[tokio::test]
async fn different_owners_on_one_handle_exclude_each_other() {
    let world = World::new();
    let locks = world.locks();
    let _guard = locks.lock("k").reentrant(&Owner::new()).acquire().await.unwrap();
    assert!(locks.lock("k").reentrant(&Owner::new()).try_acquire().await.unwrap().is_none());
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn an_owner_holds_different_keys_and_stores_apart() {
    let owner = Owner::new();
    let (a, b) = (Locks::new(Memory::new()), Locks::new(Memory::new()));
    let on_a = a.lock("k").reentrant(&owner).acquire().await.unwrap();
    let on_b = b.lock("k").reentrant(&owner).acquire().await.unwrap();
    let other = a.lock("other").reentrant(&owner).acquire().await.unwrap();
    assert_ne!(on_a.lock_id(), on_b.lock_id());
    assert_ne!(on_a.lock_id(), other.lock_id());
}

#[tokio::test]
async fn a_lost_lock_is_not_entered_again() {
    let world = World::new();
    let locks = world.locks();
    let owner = Owner::new();
    let lost = locks.lock("k").reentrant(&owner).heartbeat(false).acquire().await.unwrap();
    world.clock.advance(TTL + Duration::from_secs(1));
    let fresh = locks.lock("k").reentrant(&owner).acquire().await.unwrap();
    assert!(fresh.fence() > lost.fence());
    assert_eq!(lost.loss(), Some(Loss::Expired));
}

#[tokio::test]
async fn all_guards_of_a_lost_lock_hear_of_it() {
    let world = World::new();
    let locks = world.locks();
    let owner = Owner::new();
    let outer = locks.lock("k").reentrant(&owner).heartbeat(false).acquire().await.unwrap();
    let inner = locks.lock("k").reentrant(&owner).acquire().await.unwrap();
    world.clock.advance(TTL);
    assert_eq!((outer.lost().await, inner.lost().await), (Loss::Expired, Loss::Expired));
}

#[tokio::test]
async fn two_tasks_of_one_owner_that_start_together_share_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let owner = Owner::new();
    let held = world.rival().lock("k").acquire().await.unwrap();
    let enter = || {
        let (locks, owner) = (locks.clone(), owner.clone());
        tokio::spawn(async move { locks.lock("k").reentrant(&owner).wait_forever().acquire().await })
    };
    let (a, b) = (enter(), enter());
    eventually("they wait", async || world.faults.calls(Operation::Acquire) == 2).await;
    held.release().await.unwrap();
    let (a, b) = (a.await.unwrap().unwrap(), b.await.unwrap().unwrap());
    assert_eq!(a.lock_id(), b.lock_id());
}

#[tokio::test]
async fn an_owner_in_line_behind_others_enters_what_another_of_its_tasks_got() {
    let world = World::new();
    let locks = world.locks();
    let first = locks.lock("k").acquire().await.unwrap();
    let (mine, other) = (Owner::new(), Owner::new());
    let mut waiting = Vec::new();
    for owner in [&mine, &other, &mine] {
        let request = locks.lock("k").reentrant(owner).wait_forever();
        waiting.push(tokio::spawn(async move { request.acquire().await.unwrap() }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.release().await.unwrap();
    let [a, b, c] = waiting.try_into().unwrap();
    let a = a.await.unwrap();
    let c = c.await.unwrap();
    assert_eq!(a.lock_id(), c.lock_id());
    assert!(!b.is_finished());
    drop((a, c));
    assert!(b.await.unwrap().fence().get() > 0);
}
