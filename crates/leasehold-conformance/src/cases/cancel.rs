//! A future that is dropped halfway leaves nothing that its caller cannot undo.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold::Operation;
use leasehold::backend::{Acquire, Release, Topic};
use leasehold::testing::Fault;

use super::context::{
    Context, EVENT_TIMEOUT, LONG, acquire, event, extended, granted, release, released, request, ttl,
};
use super::group;

group!("cancel":
    dropped_acquire_leaves_at_most_its_own_lock_id,
    dropped_release_can_be_repeated,
    dropped_extend_keeps_the_lock,
    dropped_reads_disturb_nobody,
    dropped_subscription_disturbs_nobody,
    dropped_wait_leaves_no_orphan,
);

/// More polls than any store needs for one round trip.
const POLLS: usize = 24;

/// Polls `future` at most `polls` times, each when it asked for it, and drops it. Whether it was
/// done by then.
async fn poll_at_most(polls: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    let polled = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    });
    // A future that waits for something other than the answer would never ask for its last polls.
    tokio::time::timeout(Duration::from_secs(1), polled).await.unwrap_or(false)
}

async fn dropped_acquire_leaves_at_most_its_own_lock_id(cx: &Context) {
    for polls in 0..POLLS {
        let key = cx.key(&format!("dropped-{polls}"));
        let dropped = request(&key, LONG);
        let done = poll_at_most(polls, cx.backend.acquire(&dropped)).await;
        if let Some(record) = cx.record(&key).await {
            assert_eq!(record.lock_id, dropped.lock_id, "after {polls} polls somebody else holds the lock");
        }
        // The request may still be on its way, so one release may come too early.
        let give_up = Instant::now() + EVENT_TIMEOUT;
        loop {
            release(&cx.backend, &dropped.lock_id).await;
            if let Acquire::Granted(_) = acquire(&cx.peer, &request(&key, LONG)).await {
                break;
            }
            assert!(Instant::now() < give_up, "after {polls} polls the lock cannot be freed by its id");
            cx.pass(10).await;
        }
        if done {
            return;
        }
    }
}

async fn dropped_release_can_be_repeated(cx: &Context) {
    for polls in 0..POLLS {
        let key = cx.key(&format!("dropped-{polls}"));
        let grant = cx.take(&key, LONG).await;
        let done = poll_at_most(polls, cx.backend.release(&grant.lock_id)).await;
        let again = release(&cx.backend, &grant.lock_id).await;
        if polls == 0 {
            assert_eq!(again, Release::Released, "a release that was never polled does nothing");
        }
        assert!(!cx.is_locked(&key).await, "after {polls} polls the lock cannot be released");
        granted(&cx.peer, &request(&key, LONG)).await;
        if done {
            return;
        }
    }
}

async fn dropped_extend_keeps_the_lock(cx: &Context) {
    for polls in 0..POLLS {
        let key = cx.key(&format!("dropped-{polls}"));
        let grant = cx.take(&key, LONG).await;
        let done = poll_at_most(polls, cx.backend.extend(&grant.lock_id, ttl(LONG * 2))).await;
        extended(&cx.backend, &grant.lock_id, LONG).await;
        assert_eq!(cx.record(&key).await.map(|record| record.fence), Some(grant.fence));
        released(&cx.backend, &grant.lock_id).await;
        if done {
            return;
        }
    }
}

async fn dropped_reads_disturb_nobody(cx: &Context) {
    let key = cx.key("read");
    let grant = cx.take(&key, LONG).await;
    let before = cx.record(&key).await;
    for polls in 0..POLLS {
        if poll_at_most(polls, cx.backend.is_locked(&key)).await {
            break;
        }
    }
    // The answer to a read that nobody waits for must not become the answer to the next question.
    assert!(!cx.is_locked(&cx.key("free")).await);
    assert_eq!(cx.record(&key).await, before);
    released(&cx.backend, &grant.lock_id).await;
}

async fn dropped_subscription_disturbs_nobody(cx: &Context) {
    let key = cx.key("watched");
    let grant = cx.take(&key, LONG).await;
    let mut kept = cx.peer.subscribe(Topic::Freed(&key)).await.expect("subscribe answers");
    for _ in 0..3 {
        drop(cx.peer.subscribe(Topic::Freed(&key)).await.expect("subscribe answers"));
        drop(cx.peer.subscribe(Topic::Taken).await.expect("subscribe answers"));
    }
    released(&cx.backend, &grant.lock_id).await;
    if cx.backend.capabilities().wake_ups {
        event(&mut kept).await;
    }
    drop(kept);
    granted(&cx.peer, &request(&key, LONG)).await;
}

async fn dropped_wait_leaves_no_orphan(cx: &Context) {
    for stall in [Fault::DelayBefore, Fault::DelayAfter] {
        for polls in 0..6 {
            let key = cx.key("dropped");
            let (locks, faults) = cx.locks();
            faults.always(Operation::Acquire, stall(Duration::from_millis(5)));
            let done = poll_at_most(polls, locks.lock(&key).acquire()).await;
            // The answer may come only after the caller is gone.
            tokio::time::sleep(Duration::from_millis(10)).await;
            cx.until_unlocked(&key).await;
            if done {
                break;
            }
        }
    }
}
