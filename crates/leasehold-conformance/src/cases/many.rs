//! Many locks in one request: an answer for each, as if each had been asked about by itself.

use leasehold::backend::{Event, Extend, MOST_AT_ONCE, Release, Topic};

use super::context::{Context, LONG, SHORT, event, extended, new_id, refused, released, request, ttl};
use super::group;

group!("many":
    extending_answers_for_each_in_order,
    extending_changes_only_those_that_are_held,
    extending_none_answers_nothing,
    releasing_answers_for_each_in_order_and_once,
    releasing_wakes_who_waits,
);

async fn extending_answers_for_each_in_order(cx: &Context) {
    let mut locks = Vec::new();
    for number in 0..MOST_AT_ONCE {
        let grant = cx.take(&cx.key(&format!("extended-{number}")), LONG).await;
        locks.push((grant.lock_id, ttl(LONG + 1000 * number as u64)));
    }
    let earliest = cx.earliest();
    let answers = cx.backend.extend_many(&locks).await;
    let latest = cx.latest();
    assert_eq!(answers.len(), locks.len(), "an answer for each");
    for ((id, ttl), answer) in locks.iter().zip(answers) {
        let Ok(Extend::Extended { expires_at }) = answer else { panic!("the lock is held, but {answer:?}") };
        assert!(expires_at >= earliest.expiry(*ttl) && expires_at <= latest.expiry(*ttl), "each has its own ttl");
        assert_eq!(cx.record_of(id).await.expect("the lock is held").expires_at, expires_at);
    }
}

async fn extending_changes_only_those_that_are_held(cx: &Context) {
    let (held, gone) = (cx.take(&cx.key("held"), LONG).await, cx.take(&cx.key("gone"), LONG).await);
    let (expired, other) = (cx.take(&cx.key("expired"), SHORT).await, cx.take(&cx.key("other"), LONG).await);
    released(&cx.backend, &gone.lock_id).await;
    cx.until_free(SHORT).await;
    let asked = [gone.lock_id, held.lock_id, expired.lock_id, new_id()].map(|id| (id, ttl(LONG * 2)));
    let answers = cx.backend.extend_many(&asked).await;
    let held_still: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Extend::Extended { .. }))).collect();
    assert_eq!(held_still, [false, true, false, false], "{answers:?}");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(cx.record(&cx.key("gone")).await, None, "nothing is recreated");
    assert_eq!(cx.record(&cx.key("expired")).await, None, "nothing is recreated");
    let record = cx.record_of(&other.lock_id).await.expect("the lock is held");
    assert_eq!(record.expires_at, other.expires_at, "what was not asked about is as it was");
}

async fn extending_none_answers_nothing(cx: &Context) {
    assert!(cx.backend.extend_many(&[]).await.is_empty());
    assert!(cx.backend.release_many(&[]).await.is_empty());
}

async fn releasing_answers_for_each_in_order_and_once(cx: &Context) {
    let mut ids = Vec::new();
    for number in 0..MOST_AT_ONCE - 1 {
        ids.push(cx.take(&cx.key(&format!("released-{number}")), LONG).await.lock_id);
    }
    let kept = cx.take(&cx.key("kept"), LONG).await;
    ids.insert(7, new_id());
    for first_time in [true, false] {
        let answers = cx.backend.release_many(&ids).await;
        assert_eq!(answers.len(), ids.len(), "an answer for each");
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.expect("release answers");
            assert_eq!(answer == Release::Released, first_time && number != 7, "{number}: {answer:?}");
        }
    }
    refused(&cx.peer, &request(&cx.key("kept"), LONG)).await;
    extended(&cx.backend, &kept.lock_id, LONG).await;
    for number in 0..MOST_AT_ONCE - 1 {
        assert_eq!(cx.record(&cx.key(&format!("released-{number}"))).await, None);
    }
}

async fn releasing_wakes_who_waits(cx: &Context) {
    if !cx.backend.capabilities().wake_ups {
        return;
    }
    let (first, second) = (cx.key("first"), cx.key("second"));
    let ids = [cx.take(&first, LONG).await.lock_id, cx.take(&second, LONG).await.lock_id];
    let mut waiting = [
        cx.peer.subscribe(Topic::Freed(&first)).await.expect("subscribe answers"),
        cx.peer.subscribe(Topic::Freed(&second)).await.expect("subscribe answers"),
    ];
    cx.backend.release_many(&ids).await;
    for subscription in &mut waiting {
        assert!(matches!(event(subscription).await, Event::Freed | Event::Missed));
    }
}
