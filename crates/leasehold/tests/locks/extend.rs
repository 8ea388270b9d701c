//! Extending by hand.

use std::time::Duration;

use leasehold::testing::Fault;
use leasehold::{ErrorCode, LockState, Loss, Operation, Ttl};
use test_support::eventually;

use crate::support::{TTL, World, poll_then_drop};

#[tokio::test]
async fn extend_replaces_what_was_left_and_never_adds_to_it() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.clock.advance(TTL / 2);
    guard.extend(Duration::from_secs(20)).await.unwrap();
    assert_eq!(guard.remaining(), Duration::from_secs(20));
    let record = world.rival().get_by_id(guard.lock_id()).await.unwrap().unwrap();
    assert_eq!(record.expires_at, guard.expires_at());
    assert_eq!(guard.expires_at().as_millis(), world.clock.now().as_millis() + 20_000);
    guard.extend(Duration::from_secs(5)).await.unwrap();
    assert_eq!(guard.remaining(), Duration::from_secs(5));
}

#[tokio::test]
async fn ensure_extends_only_if_less_is_left() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    guard.ensure(TTL).await.unwrap();
    assert_eq!(world.faults.calls(Operation::Extend), 0);
    world.clock.advance(TTL - Duration::from_secs(5));
    guard.ensure(Duration::from_secs(5)).await.unwrap();
    assert_eq!(world.faults.calls(Operation::Extend), 0);
    guard.ensure(Duration::from_secs(6)).await.unwrap();
    assert_eq!(world.faults.calls(Operation::Extend), 1);
    assert_eq!(guard.remaining(), TTL);
    guard.ensure(TTL * 4).await.unwrap();
    assert!(guard.remaining() >= TTL * 4);
}

#[tokio::test]
async fn a_heartbeat_goes_on_with_the_new_ttl_and_does_not_shorten_a_longer_lease() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    guard.extend(TTL * 10).await.unwrap();
    // The keeper plans anew a moment after the answer. It would renew once too often before that.
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.clock.advance(TTL * 3);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.faults.calls(Operation::Extend), 1, "nothing to renew yet");
    world.clock.advance(TTL);
    eventually("renewed with the longer ttl", async || guard.remaining() == TTL * 10).await;
    guard.extend(Duration::from_secs(3)).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    eventually("renewed with the shorter ttl", async || guard.remaining() == Duration::from_secs(3)).await;
}

#[tokio::test]
async fn extending_a_lock_that_is_gone_ends_it_and_does_not_create_it() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.rival().release(guard.lock_id()).await.unwrap();
    let error = guard.extend(TTL).await.unwrap_err();
    assert_eq!((error.code(), error.loss()), (ErrorCode::LockLost, Some(Loss::Gone)));
    assert_eq!(guard.state(), LockState::Lost);
    assert_eq!(guard.lost().await, Loss::Gone);
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn a_lost_lock_is_not_extended_even_if_the_store_would() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.clock.advance(TTL);
    for result in [guard.extend(TTL).await, guard.ensure(TTL).await] {
        assert_eq!(result.unwrap_err().loss(), Some(Loss::Expired));
    }
    assert_eq!(world.faults.calls(Operation::Extend), 0);
}

#[tokio::test]
async fn a_shorter_extend_of_unknown_outcome_shortens_the_deadline() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::FailAfter(ErrorCode::NetworkTimeout));
    guard.extend(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(guard.remaining(), Duration::from_secs(5), "the store may have set it");
}

#[tokio::test]
async fn a_shorter_extend_that_is_on_its_way_already_counts() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::HangAfter);
    let extend = tokio::spawn({
        let lease = guard.lease().clone();
        async move { lease.extend(Duration::from_secs(5)).await }
    });
    eventually("sent", async || world.faults.calls(Operation::Extend) == 1).await;
    assert_eq!(guard.remaining(), Duration::from_secs(5), "the store may have carried it out");
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(guard.lost().await, Loss::Expired);
    extend.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn an_extend_that_may_still_arrive_bounds_every_later_deadline() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::FailAfter(ErrorCode::NetworkTimeout));
    guard.extend(Duration::from_secs(5)).await.unwrap_err();
    guard.extend(TTL * 10).await.unwrap();
    assert_eq!(
        guard.remaining(),
        Duration::from_secs(5),
        "the extend that was not answered may reach the store after the one that was"
    );
    let sent = world.faults.calls(Operation::Extend);
    world.clock.advance(Duration::from_secs(2));
    eventually("renewed at a third of what is certain", async || guard.remaining() == Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.faults.calls(Operation::Extend), sent + 1, "once, and not over and over");
}

#[tokio::test]
async fn a_cancelled_extend_is_carried_out_all_the_same() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.faults.always(Operation::Extend, Fault::DelayBefore(Duration::from_millis(5)));
    assert!(poll_then_drop(guard.extend(TTL * 2), 1).await.is_none());
    eventually("extended", async || guard.remaining() == TTL * 2).await;
}

#[test]
fn an_extend_on_a_blocked_runtime_does_not_keep_renewals_waiting() {
    let world = World::new();
    let locks = world.locks();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(async { locks.lock("k").acquire().await.unwrap() });
    world.faults.always(Operation::Extend, Fault::DelayAfter(Duration::from_millis(5)));
    runtime.block_on(async {
        let mut extend = std::pin::pin!(guard.extend(TTL * 2));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(extend.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        // The extend is never polled again while the thread is blocked.
        for _ in 0..4 {
            test_servers::eventually("extended", || guard.remaining() == TTL * 2);
            world.clock.advance(TTL * 2 / 3);
        }
        test_servers::eventually("extended", || guard.remaining() == TTL * 2);
        assert_eq!(guard.state(), LockState::Held);
    });
    assert!(world.faults.calls(Operation::Extend) >= 5);
}

#[tokio::test]
async fn an_extend_that_certainly_failed_changes_nothing() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.faults.next(Operation::Extend, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    guard.extend(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(guard.remaining(), TTL);
    assert_eq!(guard.state(), LockState::Held);
}

#[tokio::test]
async fn extends_of_one_lock_are_sent_one_after_the_other() {
    let world = World::new();
    let guard = world.locks().lock("k").heartbeat(false).acquire().await.unwrap();
    world.faults.always(Operation::Extend, Fault::DelayAfter(Duration::from_millis(5)));
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let lease = guard.lease().clone();
            tokio::spawn(async move { lease.extend(Duration::from_secs(10 + n)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(world.faults.most_at_once(Operation::Extend), 1);
}

#[tokio::test]
async fn a_wrong_ttl_is_refused_before_anything_is_sent() {
    let world = World::new();
    let guard = world.locks().lock("k").acquire().await.unwrap();
    assert_eq!(guard.extend(Duration::ZERO).await.unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(world.faults.calls(Operation::Extend), 0);
}

#[tokio::test]
async fn extending_or_releasing_by_id_does_not_go_behind_the_guards_back() {
    let world = World::new();
    let locks = world.locks();
    let guard = locks.lock("k").heartbeat(false).acquire().await.unwrap();
    assert!(locks.extend(guard.lock_id(), Ttl::from_millis(5000).unwrap()).await.unwrap());
    assert_eq!(guard.remaining(), Duration::from_secs(5));
    assert!(locks.release(guard.lock_id()).await.unwrap());
    assert_eq!(guard.loss(), Some(Loss::Released));
    assert!(!locks.extend(guard.lock_id(), Ttl::default()).await.unwrap());
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn an_extend_before_the_lock_was_handed_out_that_may_still_arrive_bounds_every_deadline() {
    let world = World::new();
    // A grant that is found late is extended before it is handed out: here twice, because the first
    // answer is lost.
    world.faults.next(Operation::Acquire, Fault::FailAfter(ErrorCode::ServiceUnavailable));
    world.faults.next(Operation::Extend, Fault::FailAfter(ErrorCode::NetworkTimeout));
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").heartbeat(false).wait_forever().acquire().await });
    eventually("the first try has landed", async || world.is_locked("k").await).await;
    world.clock.advance(TTL - Duration::from_secs(8));
    eventually("it is handed out", async || {
        world.clock.advance(Duration::from_millis(10));
        waiter.is_finished()
    })
    .await;
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(world.faults.calls(Operation::Extend), 2);
    guard.extend(TTL * 10).await.unwrap();
    assert_eq!(guard.remaining(), TTL, "the first of them may reach the store after this one");
}
