//! Locks of several holders that are taken from them.

use leasehold::backend::AcquireRequest;
use leasehold::{Fence, Key, Steal};

use super::context::{LONG, extended, not_extended};
use super::{
    Context, granted, group, holder, inspect, joining, live_record, not_released, one_of, permit, reader, refused,
    released, request, waiters, waits,
};

group!("kinds":
    steal_of_readers_takes_all_or_none needs Lines,
    one_of_several_victims needs Lines,
    only_the_oldest_that_may_be_taken_is needs Lines,
    a_reader_takes_no_reader needs Lines,
    a_steal_ignores_the_line needs Lines,
    force_release_with_a_fence_spares_others needs Lines,
    force_release_ends_all_of_them needs Lines,
    force_release_ends_no_place needs Lines within CALL_LEASE,
);

const SAME_HOLDER: Steal = Steal::NEVER.with_same_holder();

fn named(request: AcquireRequest, name: &str) -> AcquireRequest {
    request.with_holder(holder(name))
}

async fn fences(cx: &Context, key: &Key) -> Vec<Fence> {
    inspect(cx, key).await.holders.iter().map(|held| held.fence).collect()
}

async fn steal_of_readers_takes_all_or_none(cx: &Context) {
    let key = cx.key("readers");
    let first = granted(&cx.backend, &named(reader(&key, LONG), "worker")).await;
    let stranger = granted(&cx.backend, &named(reader(&key, LONG), "stranger")).await;
    let thief = named(request(&key, LONG), "worker").with_steal(SAME_HOLDER);
    refused(&cx.peer, &thief).await;
    assert_eq!(fences(cx, &key).await, [first.fence, stranger.fence], "nothing is taken that does not help");
    released(&cx.backend, &stranger.lock_id).await;
    let second = granted(&cx.peer, &named(reader(&key, LONG), "worker")).await;
    let grant = granted(&cx.peer, &thief).await;
    assert!(grant.fence > second.fence);
    for victim in [first, second] {
        assert_eq!(cx.record_of(&victim.lock_id).await, None);
        not_extended(&cx.backend, &victim.lock_id, LONG).await;
        not_released(&cx.backend, &victim.lock_id).await;
    }
    assert_eq!(fences(cx, &key).await, [grant.fence]);
}

async fn one_of_several_victims(cx: &Context) {
    let key = cx.key("permits");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(granted(&cx.backend, &named(permit(3, &key, LONG), "worker")).await);
    }
    let thief = named(permit(3, &key, LONG), "worker").with_steal(SAME_HOLDER);
    let grant = granted(&cx.peer, &thief).await;
    assert_eq!(grant.slot, Some(0), "the slot of its victim");
    assert_eq!(fences(cx, &key).await, [held[1].fence, held[2].fence, grant.fence]);
    not_extended(&cx.backend, &held[0].lock_id, LONG).await;
    extended(&cx.backend, &held[1].lock_id, LONG).await;
    assert_eq!(granted(&cx.backend, &thief).await, grant, "and no more when it is repeated");
}

async fn only_the_oldest_that_may_be_taken_is(cx: &Context) {
    let key = cx.key("some-permits");
    let mut held = Vec::new();
    for name in ["stranger", "worker", "worker"] {
        held.push(granted(&cx.backend, &named(permit(3, &key, LONG), name)).await);
    }
    let thief = named(permit(3, &key, LONG), "worker").with_steal(SAME_HOLDER);
    let grant = granted(&cx.peer, &thief).await;
    assert_eq!(grant.slot, Some(1), "the slot of its victim");
    assert_eq!(fences(cx, &key).await, [held[0].fence, held[2].fence, grant.fence]);
    // Two of the three must go, and only one of them may.
    released(&cx.peer, &grant.lock_id).await;
    granted(&cx.peer, &named(permit(3, &key, LONG), "stranger")).await;
    let before = fences(cx, &key).await;
    let thief = named(permit(2, &key, LONG), "worker").with_steal(SAME_HOLDER);
    assert_eq!(refused(&cx.backend, &thief).await.mode, one_of(3));
    assert_eq!(fences(cx, &key).await, before);
}

async fn a_reader_takes_no_reader(cx: &Context) {
    let key = cx.key("harmless");
    let first = granted(&cx.backend, &named(reader(&key, LONG), "worker")).await;
    let second = granted(&cx.peer, &named(reader(&key, LONG), "worker").with_steal(SAME_HOLDER)).await;
    assert_eq!(fences(cx, &key).await, [first.fence, second.fence], "there was room without it");
}

async fn a_steal_ignores_the_line(cx: &Context) {
    let key = cx.key("line");
    let stuck = granted(&cx.backend, &named(request(&key, LONG), "stuck")).await;
    let waiter = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &waiter, 0).await;
    let before = waiters(cx, &key).await;
    granted(&cx.peer, &joining(request(&key, LONG), LONG).with_steal(Steal::NEVER.with_fence(stuck.fence))).await;
    assert_eq!(waiters(cx, &key).await, before, "those who wait go on waiting");
    not_extended(&cx.backend, &stuck.lock_id, LONG).await;
    waits(&cx.backend, &waiter, 0).await;
}

async fn force_release_with_a_fence_spares_others(cx: &Context) {
    let key = cx.key("by-fence");
    let wanted = [0, 1, 2].map(|_| permit(3, &key, LONG));
    for request in &wanted {
        granted(&cx.backend, request).await;
    }
    let records =
        [live_record(cx, &wanted[0]).await, live_record(cx, &wanted[1]).await, live_record(cx, &wanted[2]).await];
    let force = async |fence| cx.peer.force_release(&key, Some(fence)).await.expect("force_release answers");
    let unknown = Fence::new(records[2].fence.get() + 1).expect("a small fence");
    assert_eq!(force(unknown).await, []);
    assert_eq!(force(records[1].fence).await, [records[1].clone()]);
    assert_eq!(force(records[1].fence).await, [], "it ended once");
    not_extended(&cx.backend, &wanted[1].lock_id, LONG).await;
    assert_eq!(inspect(cx, &key).await.holders, [records[0].clone(), records[2].clone()]);
    assert_eq!(granted(&cx.peer, &permit(3, &key, LONG)).await.slot, Some(1));
}

async fn force_release_ends_all_of_them(cx: &Context) {
    let key = cx.key("all");
    let wanted = [reader(&key, LONG), reader(&key, LONG)];
    for request in &wanted {
        granted(&cx.backend, request).await;
    }
    let before = inspect(cx, &key).await.holders;
    let mut ended = cx.peer.force_release(&key, None).await.expect("force_release answers");
    ended.sort_by_key(|record| record.fence);
    assert_eq!(ended, before);
    for request in &wanted {
        not_released(&cx.backend, &request.lock_id).await;
    }
    assert!(!cx.is_locked(&key).await);
    granted(&cx.backend, &request(&key, LONG)).await;
}

async fn force_release_ends_no_place(cx: &Context) {
    let key = cx.key("places");
    let held = cx.take(&key, LONG).await;
    let waiter = joining(request(&key, LONG), LONG);
    waits(&cx.backend, &waiter, 0).await;
    let ended = cx.peer.force_release(&key, Some(held.fence)).await.expect("force_release answers");
    assert_eq!(ended.iter().map(|record| record.lock_id).collect::<Vec<_>>(), [held.lock_id]);
    refused(&cx.peer, &request(&key, LONG)).await;
    granted(&cx.backend, &waiter).await;
}
