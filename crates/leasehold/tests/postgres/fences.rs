//! Fences go on from wherever the counter stands, and never below the clock.

use leasehold::{Backend, ErrorCode};

use crate::support::{connect, everything_said, granted, held, now, number, request, row, server};

#[tokio::test]
async fn a_counter_that_ran_ahead_of_the_clock_goes_on_from_there() {
    let server = server().await;
    let store = connect(&server).await;
    let ahead = now(&server) * 10 + 1_000_000_000;
    server.sql(&format!("INSERT INTO syncguard_fence_counters VALUES ('fence:order:42', {ahead}, 'order:42')"));
    for more in 1..=3 {
        let mine = request("order:42");
        assert_eq!(granted(&store, &mine).await.fence.get(), ahead + more);
        store.release(&mine.lock_id).await.unwrap();
    }
    assert_eq!(number(&server, "SELECT fence FROM syncguard_fence_counters"), ahead + 3);
}

#[tokio::test]
async fn a_fence_is_never_below_the_clock_even_if_the_counter_was_forgotten() {
    let server = server().await;
    let store = connect(&server).await;
    let mut last = 0;
    for forget in ["", "TRUNCATE syncguard_fence_counters", "UPDATE syncguard_fence_counters SET fence = 7"] {
        server.sql(forget);
        let mine = request("order:42");
        let before = now(&server) * 10;
        let fence = granted(&store, &mine).await.fence.get();
        assert!(fence > last && (before..=now(&server) * 10 + 10).contains(&fence), "{fence} {before}");
        store.release(&mine.lock_id).await.unwrap();
        last = fence;
    }
}

#[tokio::test]
async fn a_repeated_acquire_has_the_same_fence_and_a_refused_one_uses_none_up() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    let grant = granted(&store, &mine).await;
    held(&store, &request("order:42")).await;
    assert_eq!(granted(&store, &mine).await, grant);
    assert_eq!(number(&server, "SELECT fence FROM syncguard_fence_counters"), grant.fence.get());
}

#[tokio::test]
async fn nobody_gets_a_fence_beyond_the_highest() {
    let server = server().await;
    let store = connect(&server).await;
    for (name, counter) in
        [("order:1", 899_999_999_999_999_i64), ("order:2", 900_000_000_000_000), ("order:3", i64::MAX)]
    {
        server.sql(&format!("INSERT INTO syncguard_fence_counters VALUES ('fence:{name}', {counter}, '{name}')"));
        let answer = store.acquire(&request(name)).await;
        if name == "order:1" {
            assert!(answer.is_ok(), "{answer:?}");
            continue;
        }
        let error = answer.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal, "{error:?}");
        assert!(!error.outcome_unknown() && error.hint().unwrap().contains("fence counter"), "{error:?}");
        assert!(!error.to_string().contains(name) && everything_said(&error).contains("beyond"), "{error:?}");
        assert_eq!(row(&server, name), "", "nothing was granted");
        let kept = format!("SELECT fence = {counter} FROM syncguard_fence_counters WHERE fence_key = 'fence:{name}'");
        assert_eq!(server.sql(&kept), "t");
    }
}
