//! A lock is taken from its holder only with permission, and then for good.

use std::time::Duration;

use leasehold::backend::AcquireRequest;
use leasehold::{Key, Steal};

use super::context::{
    Context, LONG, extended, granted, holder, not_extended, not_released, refused, released, request,
};
use super::group;

group!("steal":
    never_without_permission,
    same_holder_takes_its_own_lock_back,
    same_holder_leaves_strangers_alone,
    held_longer_than_takes_a_stuck_lock,
    held_longer_than_leaves_a_fresh_lock,
    an_extend_does_not_make_a_stuck_lock_fresh,
    a_grant_is_taken_by_its_fence,
    a_fence_takes_no_later_grant,
    old_id_is_dead_and_cannot_touch_the_thief,
    the_thief_has_a_grant_of_its_own,
    a_repeated_steal_returns_the_same_grant,
);

fn named(key: &Key, name: &str, steal: Steal) -> AcquireRequest {
    request(key, LONG).with_holder(holder(name)).with_steal(steal)
}

const SAME_HOLDER: Steal = Steal::NEVER.with_same_holder();

async fn never_without_permission(cx: &Context) {
    let key = cx.key("kept");
    granted(&cx.backend, &named(&key, "worker", Steal::NEVER)).await;
    refused(&cx.backend, &named(&key, "worker", Steal::NEVER)).await;
    refused(&cx.peer, &named(&key, "worker", Steal::NEVER)).await;
}

async fn same_holder_takes_its_own_lock_back(cx: &Context) {
    for (number, name) in ["worker", "worker -", "- 1 ignore -", "-"].into_iter().enumerate() {
        let key = cx.key(&format!("left-behind-{number}"));
        granted(&cx.backend, &named(&key, name, Steal::NEVER)).await;
        let thief = granted(&cx.peer, &named(&key, name, SAME_HOLDER)).await;
        assert_eq!(cx.record(&key).await.map(|record| record.lock_id), Some(thief.lock_id), "{name}");
    }
}

async fn same_holder_leaves_strangers_alone(cx: &Context) {
    let key = cx.key("guarded");
    granted(&cx.backend, &named(&key, "worker-1", Steal::NEVER)).await;
    for stranger in ["worker-2", "worker", "worker-11", "WORKER-1"] {
        refused(&cx.peer, &named(&key, stranger, SAME_HOLDER)).await;
    }
}

async fn held_longer_than_takes_a_stuck_lock(cx: &Context) {
    let key = cx.key("stuck");
    granted(&cx.backend, &named(&key, "stuck", Steal::NEVER)).await;
    cx.pass(300).await;
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_millis(100));
    let thief = granted(&cx.peer, &named(&key, "thief", steal)).await;
    assert_eq!(cx.record(&key).await.map(|record| record.lock_id), Some(thief.lock_id));
}

async fn held_longer_than_leaves_a_fresh_lock(cx: &Context) {
    let key = cx.key("fresh");
    granted(&cx.backend, &named(&key, "busy", Steal::NEVER)).await;
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_secs(30));
    refused(&cx.peer, &named(&key, "thief", steal)).await;
    // A limit beyond what a store's integers hold is a limit that is never reached.
    let steal = Steal::NEVER.with_held_longer_than(Duration::MAX);
    refused(&cx.peer, &named(&key, "thief", steal)).await;
}

async fn an_extend_does_not_make_a_stuck_lock_fresh(cx: &Context) {
    let key = cx.key("renewed");
    let stuck = granted(&cx.backend, &named(&key, "stuck", Steal::NEVER)).await;
    cx.pass(300).await;
    extended(&cx.backend, &stuck.lock_id, LONG).await;
    let steal = Steal::NEVER.with_held_longer_than(Duration::from_millis(200));
    granted(&cx.peer, &named(&key, "thief", steal)).await;
}

async fn a_grant_is_taken_by_its_fence(cx: &Context) {
    let key = cx.key("by-fence");
    let stuck = granted(&cx.backend, &named(&key, "stuck", Steal::NEVER)).await;
    let seen = refused(&cx.peer, &named(&key, "thief", Steal::NEVER)).await;
    assert_eq!(seen.fence, Some(stuck.fence), "whoever is refused learns which grant is in the way");
    extended(&cx.backend, &stuck.lock_id, LONG * 2).await;
    let thief = granted(&cx.peer, &named(&key, "thief", Steal::NEVER.with_fence(stuck.fence))).await;
    assert!(thief.fence > stuck.fence);
    assert_eq!(cx.record(&key).await.map(|record| record.lock_id), Some(thief.lock_id));
    not_extended(&cx.backend, &stuck.lock_id, LONG).await;
}

async fn a_fence_takes_no_later_grant(cx: &Context) {
    let key = cx.key("later");
    let first = granted(&cx.backend, &named(&key, "first", Steal::NEVER)).await;
    released(&cx.backend, &first.lock_id).await;
    let second = granted(&cx.backend, &named(&key, "second", Steal::NEVER)).await;
    refused(&cx.peer, &named(&key, "thief", Steal::NEVER.with_fence(first.fence))).await;
    assert_eq!(cx.record(&key).await.map(|record| record.lock_id), Some(second.lock_id));
}

async fn old_id_is_dead_and_cannot_touch_the_thief(cx: &Context) {
    let key = cx.key("stolen");
    let victim = granted(&cx.backend, &named(&key, "worker", Steal::NEVER)).await;
    granted(&cx.peer, &named(&key, "worker", SAME_HOLDER)).await;
    let before = cx.record(&key).await;
    assert_eq!(cx.record_of(&victim.lock_id).await, None);
    not_extended(&cx.backend, &victim.lock_id, LONG * 2).await;
    not_released(&cx.backend, &victim.lock_id).await;
    assert_eq!(cx.record(&key).await, before);
    refused(&cx.backend, &request(&key, LONG)).await;
}

async fn the_thief_has_a_grant_of_its_own(cx: &Context) {
    let key = cx.key("taken-over");
    let victim = granted(&cx.backend, &named(&key, "worker", Steal::NEVER)).await;
    cx.pass(30).await;
    let thief = granted(&cx.peer, &named(&key, "worker", SAME_HOLDER)).await;
    assert!(thief.fence > victim.fence);
    assert!(thief.acquired_at > victim.acquired_at, "held since the steal, not since the first grant");
    extended(&cx.peer, &thief.lock_id, LONG).await;
    released(&cx.peer, &thief.lock_id).await;
    assert!(!cx.is_locked(&key).await);
}

async fn a_repeated_steal_returns_the_same_grant(cx: &Context) {
    let key = cx.key("repeated");
    granted(&cx.backend, &named(&key, "worker", Steal::NEVER)).await;
    let request = named(&key, "worker", SAME_HOLDER);
    let first = granted(&cx.peer, &request).await;
    assert_eq!(granted(&cx.peer, &request).await, first);
    assert_eq!(granted(&cx.backend, &request).await, first);
}
