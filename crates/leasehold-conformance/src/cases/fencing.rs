//! Every grant has a higher fence than all grants of its key before.

use std::collections::BTreeSet;

use leasehold::backend::Acquire;
use leasehold::{Fence, Steal};

use super::context::{Context, LONG, SHORT, acquire, granted, released, request};
use super::group;

group!("fencing":
    increases_with_each_grant,
    survives_expiry,
    survives_a_forced_release,
    survives_a_steal,
    is_the_one_on_record,
    never_repeats_under_concurrency,
    floored_by_the_clock needs ClockFlooredFences,
);

async fn increases_with_each_grant(cx: &Context) {
    let key = cx.key("counted");
    let mut last = None;
    for round in 0..20 {
        let store = if round % 2 == 0 { &cx.backend } else { &cx.peer };
        let grant = granted(store, &request(&key, LONG)).await;
        assert!(Some(grant.fence) > last, "{:?} follows {last:?}", grant.fence);
        last = Some(grant.fence);
        released(store, &grant.lock_id).await;
    }
}

async fn survives_expiry(cx: &Context) {
    let key = cx.key("expired");
    let first = cx.take(&key, SHORT).await;
    cx.until_free(SHORT).await;
    let second = granted(&cx.peer, &request(&key, SHORT)).await;
    assert!(second.fence > first.fence, "{:?} follows {:?}", second.fence, first.fence);
    // Long enough for a store that sweeps dead records: the counter must not go with them.
    cx.until_free(SHORT + 2500).await;
    let third = cx.take(&key, LONG).await;
    assert!(third.fence > second.fence, "{:?} follows {:?}", third.fence, second.fence);
}

async fn survives_a_forced_release(cx: &Context) {
    let key = cx.key("forced");
    let first = cx.take(&key, LONG).await;
    let forced = cx.peer.force_release(&key, None).await.expect("force_release answers");
    assert!(!forced.is_empty(), "{forced:?}");
    let second = cx.take(&key, LONG).await;
    assert!(second.fence > first.fence, "{:?} follows {:?}", second.fence, first.fence);
}

async fn survives_a_steal(cx: &Context) {
    let key = cx.key("stolen");
    let first = cx.take(&key, LONG).await;
    let mut thief = request(&key, LONG);
    thief.steal = Steal::NEVER.with_same_holder();
    let second = granted(&cx.peer, &thief).await;
    assert!(second.fence > first.fence, "{:?} follows {:?}", second.fence, first.fence);
}

async fn is_the_one_on_record(cx: &Context) {
    let key = cx.key("recorded");
    let grant = cx.take(&key, LONG).await;
    let record = cx.record(&key).await.expect("the lock is held");
    assert_eq!(record.fence, grant.fence);
}

async fn never_repeats_under_concurrency(cx: &Context) {
    let key = cx.key("contended");
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let store = if client % 2 == 0 { cx.backend.clone() } else { cx.peer.clone() };
            let key = key.clone();
            tokio::spawn(async move {
                let mut fences = Vec::new();
                for _ in 0..50 {
                    if let Acquire::Granted(grant) = acquire(&store, &request(&key, LONG)).await {
                        fences.push(grant.fence);
                        released(&store, &grant.lock_id).await;
                    }
                    tokio::task::yield_now().await;
                }
                fences
            })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for client in clients {
        let fences = client.await.expect("a client ends");
        assert!(fences.is_sorted(), "the fences that one client saw went back: {fences:?}");
        for fence in fences {
            assert!(seen.insert(fence), "{fence:?} was granted twice");
        }
    }
}

async fn floored_by_the_clock(cx: &Context) {
    let key = cx.key("floored");
    for _ in 0..3 {
        let floor = Fence::clock_floor(cx.earliest());
        let grant = cx.take(&key, LONG).await;
        assert!(grant.fence >= floor, "{:?} is below the clock's {floor:?}", grant.fence);
        released(&cx.backend, &grant.lock_id).await;
        cx.pass(20).await;
    }
}
