//! Waiting: order, wake-ups, the backstop, and giving up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{Backoff, CancellationToken, ErrorCode, Holder, Jitter, Locks, Operation, Retry, TIME_TOLERANCE};
use test_support::{eventually, soon};

use crate::support::{FencesGoBack, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_on_one_key_are_one_contender_and_are_served_in_order() {
    let world = World::new();
    let locks = world.locks();
    let first = locks.lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..200 {
        let (locks, order) = (locks.clone(), order.clone());
        let (queued, wait) = tokio::sync::oneshot::channel();
        tasks.push(tokio::spawn(async move {
            let mut acquire = std::pin::pin!(locks.lock("k").wait_forever().acquire());
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            queued.send(()).unwrap();
            let guard = acquire.await.unwrap();
            order.lock().unwrap().push((number, guard.fence()));
            guard.release().await.unwrap();
        }));
        wait.await.unwrap();
    }
    assert!(world.faults.calls(Operation::Subscribe) <= 2, "one waiter and the keeper");
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "fences follow the order");
    assert_eq!(world.faults.most_at_once(Operation::Acquire), 1);
    assert!(world.faults.calls(Operation::Acquire) <= 3 * 201, "{}", world.faults.calls(Operation::Acquire));
}

#[tokio::test]
async fn a_release_in_another_process_wakes_the_waiter() {
    let world = World::new();
    let guard = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    guard.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(world.faults.calls(Operation::Acquire), 3, "no time has passed, so nothing was polled");
}

#[tokio::test]
async fn a_missed_wake_up_is_made_good_by_looking_when_the_lease_ends_at_the_latest() {
    let world = World::new();
    world.faults.drop_wake_ups(true);
    let held = world.rival().lock("k").ttl(Duration::from_secs(2)).acquire().await.unwrap().leak();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    world.rival().release(&held.lock_id).await.unwrap();
    world.clock.advance(Duration::from_secs(2) + TIME_TOLERANCE + Duration::from_millis(2));
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_crashed_holder_is_waited_out_with_one_look_at_the_end() {
    let world = World::new();
    let _ = world.rival().lock("k").ttl(Duration::from_secs(3)).acquire().await.unwrap().leak();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    world.clock.advance(Duration::from_secs(3) + TIME_TOLERANCE + Duration::from_millis(2));
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(world.faults.calls(Operation::Acquire), 3);
}

#[tokio::test]
async fn a_waiter_asks_next_to_nothing_of_the_store() {
    // A place in line is kept by asking every three seconds.
    for (fair, seconds) in [(true, 3), (false, 5)] {
        let world = World::new();
        let held = world.rival().lock("k").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
        let request = world.locks().lock("k").wait_forever();
        let waiter = tokio::spawn(if fair { request } else { request.unfair() }.acquire());
        eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
        for _ in 0..60 {
            world.clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = world.faults.calls(Operation::Acquire);
        assert!(asked <= 2 + 60 / seconds, "{asked} with {fair}");
        held.release().await.unwrap();
        drop(waiter.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn giving_up_tells_who_holds_the_lock_and_since_when() {
    let world = World::new();
    let _held = world.rival().lock("k").holder("db-1/nightly").acquire().await.unwrap();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait(Duration::from_secs(3)).acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    world.clock.advance(Duration::from_secs(3));
    let error = waiter.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    let contention = error.contention().unwrap();
    assert_eq!(contention.holder, Some(Holder::new("db-1/nightly").unwrap()));
    assert!(error.to_string().contains("db-1/nightly"), "{error}");
    assert!(error.to_string().contains("3s"), "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn acquire_gives_up_after_five_seconds_unless_told_otherwise() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    world.clock.advance(Duration::from_millis(4_999));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiter.is_finished());
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), ErrorCode::AcquisitionTimeout);
}

#[tokio::test]
async fn waiting_in_line_counts_as_waiting() {
    let world = World::new();
    let locks = world.locks();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let first = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").wait_forever().acquire().await }
    });
    eventually("the first sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    let second = tokio::spawn(async move { locks.lock("k").wait(Duration::from_secs(1)).acquire().await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(second.await.unwrap().unwrap_err().code(), ErrorCode::AcquisitionTimeout);
    first.abort();
}

#[tokio::test]
async fn waiting_zero_is_a_single_try() {
    let world = World::new();
    let locks = world.locks();
    let guard = locks.lock("k").wait(Duration::ZERO).acquire().await.unwrap();
    let error = locks.lock("k").wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    assert!(error.contention().is_some());
    assert_eq!(world.faults.calls(Operation::Acquire), 2);
    drop(guard);
}

#[tokio::test]
async fn a_store_that_fails_for_a_while_is_tried_again() {
    let world = World::new();
    for _ in 0..3 {
        world.faults.next(Operation::Acquire, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    }
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").acquire().await });
    eventually("acquired", async || {
        world.clock.advance(Duration::from_millis(20));
        waiter.is_finished()
    })
    .await;
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(world.faults.calls(Operation::Acquire), 1);
}

#[tokio::test]
async fn a_store_that_keeps_failing_is_given_up_after_max_retries_with_its_own_error() {
    let (store, faults) = FaultLayer::new(Memory::new());
    faults.always(Operation::Acquire, Fault::FailBefore(ErrorCode::RateLimited));
    let retry = Retry::default()
        .with_max_retries(3)
        .with_delay(Duration::from_millis(1))
        .with_backoff(Backoff::Fixed)
        .with_jitter(Jitter::None);
    let error = Locks::new(store).lock("k").retry(retry).acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::RateLimited);
    assert_eq!(error.operation(), Some(Operation::Acquire));
}

#[tokio::test]
async fn an_error_that_trying_again_does_not_mend_is_returned_at_once() {
    for code in [ErrorCode::AuthFailed, ErrorCode::InvalidArgument, ErrorCode::Internal] {
        let world = World::new();
        world.faults.always(Operation::Acquire, Fault::FailBefore(code));
        let error = world.locks().lock("k").wait_forever().acquire().await.unwrap_err();
        assert_eq!(error.code(), code);
    }
}

#[tokio::test]
async fn waiting_goes_on_when_subscribing_fails() {
    let world = World::new();
    world.faults.always(Operation::Subscribe, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let held = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 1).await;
    held.release().await.unwrap();
    eventually("the waiter polls", async || {
        world.clock.advance(Duration::from_millis(20));
        waiter.is_finished()
    })
    .await;
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test]
async fn cancelling_the_token_aborts_waiting() {
    let world = World::new();
    let _held = world.rival().lock("k").acquire().await.unwrap();
    let token = CancellationToken::new();
    let waiter = tokio::spawn({
        let (locks, token) = (world.locks(), token.clone());
        async move { locks.lock("k").wait_forever().cancel_on(&token).acquire().await }
    });
    eventually("the waiter sleeps", async || world.faults.calls(Operation::Acquire) == 2).await;
    token.cancel();
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);

    let calls = world.faults.calls(Operation::Acquire);
    let error = world.locks().lock("free").cancel_on(&token).try_acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Aborted);
    assert_eq!(world.faults.calls(Operation::Acquire), calls, "a cancelled token sends nothing");
}

#[tokio::test]
async fn contention_is_reported_while_waiting() {
    let world = World::new();
    let held = world.rival().lock("k").holder("web-1").acquire().await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.locks();
    let waiter = tokio::spawn(async move {
        let tell = move |contention: &leasehold::Contention| sender.send(contention.clone()).unwrap();
        locks.lock("k").wait_forever().on_contention(tell).acquire().await
    });
    assert_eq!(heard.recv().await.unwrap().holder.unwrap().as_str(), "web-1");
    held.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_hung_store_does_not_outlast_the_wait() {
    let world = World::new();
    world.faults.always(Operation::Acquire, Fault::HangBefore);
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait(Duration::from_secs(1)).acquire().await });
    eventually("under way", async || world.faults.most_at_once(Operation::Acquire) == 1).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), ErrorCode::AcquisitionTimeout);
}

#[tokio::test]
async fn a_hung_store_is_cut_off_by_the_call_timeout() {
    let world = World::new();
    world.faults.always(Operation::Acquire, Fault::HangBefore);
    let locks = world.builder().call_timeout(Duration::from_secs(2)).build();
    let attempt = tokio::spawn(async move { locks.lock("k").try_acquire().await });
    eventually("under way", async || world.faults.most_at_once(Operation::Acquire) == 1).await;
    world.clock.advance(Duration::from_secs(2));
    let error = attempt.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NetworkTimeout);
    assert!(error.is_retryable() && error.outcome_unknown());
}

#[tokio::test]
async fn a_fence_that_goes_back_is_refused_and_the_lock_given_back() {
    let store = Memory::new();
    let locks = Locks::new(FencesGoBack { store: store.clone(), next: 100.into() });
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let error = locks.lock("k").acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
    assert!(error.hint().is_some());
    eventually("given back", async || store.is_empty()).await;
}

#[tokio::test]
async fn a_subscribe_that_hangs_does_not_keep_the_waiter_from_looking() {
    let world = World::new();
    world.faults.always(Operation::Subscribe, Fault::HangBefore);
    let held = world.rival().lock("k").acquire().await.unwrap();
    let locks = world.locks();
    let waiter = tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await });
    eventually("the waiter subscribes", async || world.faults.calls(Operation::Acquire) == 1).await;
    held.release().await.unwrap();
    eventually("it looks by itself", async || {
        world.clock.advance(Duration::from_millis(100));
        waiter.is_finished()
    })
    .await;
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_store_that_fails_to_the_end_of_the_wait_is_reported_with_its_own_error() {
    for timeout in [None, Some(Duration::from_secs(3))] {
        let world = World::new();
        world.faults.always(Operation::Acquire, Fault::FailBefore(ErrorCode::ServiceUnavailable));
        let request = world.locks().lock("k");
        let request = match timeout {
            Some(time) => request.wait(time),
            None => request,
        };
        let waiter = tokio::spawn(request.acquire());
        eventually("it gives up", async || {
            world.clock.advance(Duration::from_millis(20));
            waiter.is_finished()
        })
        .await;
        assert_eq!(waiter.await.unwrap().unwrap_err().code(), ErrorCode::ServiceUnavailable, "{timeout:?}");
    }
}

#[tokio::test]
async fn a_store_that_is_slower_than_the_ttl_is_not_asked_over_and_over() {
    let world = World::new();
    let clock = world.clock.clone();
    world.faults.on_call(Operation::Extend, move || clock.advance(Duration::from_secs(2)));
    let clock = world.clock.clone();
    world.faults.on_call(Operation::Acquire, move || clock.advance(Duration::from_millis(40)));
    let request = world.locks().lock("k").ttl(Duration::from_millis(50));
    let error = request.try_acquire().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NetworkTimeout);
    assert_eq!(world.faults.calls(Operation::Acquire), 1, "one try is one try");
}

#[tokio::test]
async fn a_callback_that_panics_leaves_nothing_behind_and_blocks_nobody() {
    let world = World::new();
    let locks = world.locks();
    let held = world.rival().lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").wait_forever().on_contention(|_| panic!("a bug")).acquire().await.map(drop) }
    });
    assert!(waiter.await.unwrap_err().is_panic());
    held.release().await.unwrap();
    locks.lock("k").wait_forever().acquire().await.unwrap().release().await.unwrap();
    assert!(world.memory.is_empty());
}

#[tokio::test]
async fn polling_starts_again_with_the_shortest_delay_when_the_holder_changes() {
    let world = World::new();
    world.faults.always(Operation::Subscribe, Fault::FailBefore(ErrorCode::ServiceUnavailable));
    let first = world.rival().lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let (locks, retry) = (world.locks(), Retry::default().with_jitter(Jitter::None));
        async move { locks.lock("k").unfair().retry(retry).wait_forever().acquire().await.map(drop) }
    });
    let looks = async |count| eventually("it looks", async || world.faults.answers(Operation::Acquire) == count).await;
    looks(1).await;
    // The keeper has failed to subscribe for it.
    eventually("it polls", async || world.faults.tries(Operation::Subscribe) == 2).await;
    for (count, delay) in [(2, 100), (3, 200), (4, 400), (5, 800)] {
        world.clock.advance(Duration::from_millis(delay));
        looks(count).await;
    }
    first.release().await.unwrap();
    let _second = world.rival().lock("k").unfair().acquire().await.unwrap();
    world.clock.advance(Duration::from_millis(1600));
    looks(6).await;
    world.clock.advance(Duration::from_millis(100));
    looks(7).await;
    waiter.abort();
}

#[tokio::test]
async fn a_waiter_behind_a_lock_of_its_own_handle_hears_of_every_end_of_it() {
    let world = World::new();
    let locks = world.locks();
    let waiting = |locks: &Locks| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("k").wait_forever().acquire().await.unwrap() })
    };
    let in_line = || tokio::time::sleep(Duration::from_millis(20));

    let guard = locks.lock("k").acquire().await.unwrap();
    let waiter = waiting(&locks);
    in_line().await;
    assert!(locks.release(guard.lock_id()).await.unwrap());
    let second = soon("released by its id", waiter).await.unwrap();

    let waiter = waiting(&locks);
    in_line().await;
    assert!(!locks.force_release("k").await.unwrap().is_empty());
    let third = soon("released by force", waiter).await.unwrap();
    drop(second);

    let waiter = waiting(&locks);
    in_line().await;
    let leaked = third.leak();
    eventually("it listens", async || world.faults.answers(Operation::Subscribe) == 2).await;
    assert!(world.rival().release(&leaked.lock_id).await.unwrap());
    drop(soon("released by another process", waiter).await.unwrap());
}
