//! Several locks at once.

use std::sync::Arc;

use leasehold::ErrorCode;
use leasehold::backend::{AcquireAll, AcquireRequest, Backend, Line, MOST_KEYS, Mode};
use test_servers::{Firestore, FirestoreFault};
use test_support::{connect, eventually, granted, held, request, ttl};

fn requests(names: &[String]) -> Vec<AcquireRequest> {
    names.iter().map(|name| request(name)).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("order:{number}")).collect()
}

#[tokio::test]
async fn as_many_as_there_may_be_are_taken_in_one_transaction_with_one_fence() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let wanted = requests(&names(MOST_KEYS));
    let one = granted(&*store, &wanted[7]).await;
    server.take_counts();
    let AcquireAll::Granted(grants) = store.acquire_all(&wanted).await.unwrap() else { panic!("held") };
    let calls = server.take_counts().calls;
    assert_eq!((calls["BeginTransaction"], calls["Commit"], calls.get("BatchWrite")), (1, 1, None), "{calls:?}");
    assert!(grants.iter().all(|grant| grant.fence == grants[0].fence && grant.fence > one.fence));
    for (request, grant) in wanted.iter().zip(&grants) {
        let document = server.document(&format!("locks/{}", request.key.as_str())).unwrap().fields;
        assert_eq!(document["lockId"]["stringValue"], grant.lock_id.expose());
        let counter = server.document(&format!("fence_counters/fence:{}", request.key.as_str())).unwrap().fields;
        assert_eq!(counter["fence"]["stringValue"], grant.fence.to_string());
    }
    let AcquireAll::Granted(again) = store.acquire_all(&wanted).await.unwrap() else { panic!("held") };
    assert_eq!(again, grants);
    let too_many = store.acquire_all(&requests(&names(MOST_KEYS + 1))).await.unwrap_err();
    assert_eq!(too_many.code(), ErrorCode::InvalidArgument);
}

#[tokio::test]
async fn whoever_would_be_refused_reads_in_no_transaction_and_writes_nothing() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    granted(&*store, &request("order:2")).await;
    held(&*store, &request("order:2").with_line(Line::Join { lease: ttl(9000) })).await;
    server.take_counts();
    let wanted = requests(&names(4));
    let AcquireAll::Held { which, contention } = store.acquire_all(&wanted).await.unwrap() else { panic!("granted") };
    assert_eq!((which, contention.holders), (2, 1));
    let counts = server.take_counts();
    assert_eq!((counts.reads, counts.writes, counts.calls.get("RunQuery")), (4, 0, None), "{counts:?}");
    assert_eq!(server.documents().keys().filter(|path| path.starts_with("locks/")).count(), 1);
}

#[tokio::test]
async fn an_id_that_holds_or_waits_for_another_key_is_refused_and_nothing_is_taken() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let (alone, shared) = (request("alone"), request("shared").with_mode(Mode::Shared));
    let waiting = request("alone").with_line(Line::Join { lease: ttl(9000) });
    granted(&*store, &alone).await;
    granted(&*store, &shared).await;
    held(&*store, &waiting).await;
    for used in [alone, shared, waiting] {
        let wanted = [request("order:1"), request("order:2").with_lock_id(used.lock_id)];
        let error = store.acquire_all(&wanted).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
        assert!(server.document("locks/order:1").is_none() && server.document("locks/order:2").is_none());
        eventually("its transaction is over", async || server.transactions() == 0).await;
    }
}

#[tokio::test]
async fn those_who_want_the_same_keys_in_any_order_all_come_to_an_end() {
    for optimistic in [false, true] {
        let server = Firestore::start();
        server.set_optimistic(optimistic);
        let store = connect(&server.url()).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let store: Arc<dyn Backend> = store.clone();
            let mut names = names(5);
            names.rotate_left(number % 5);
            tasks.spawn(async move {
                let wanted = requests(&names);
                loop {
                    if let AcquireAll::Granted(grants) = store.acquire_all(&wanted).await.unwrap() {
                        for grant in &grants {
                            store.release(&grant.lock_id).await.unwrap();
                        }
                        return grants[0].fence;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let mut fences = tasks.join_all().await;
        fences.sort_unstable();
        fences.dedup();
        assert_eq!(fences.len(), 8, "each had all of them for itself");
    }
}

#[tokio::test]
async fn a_commit_of_unknown_outcome_is_found_by_whoever_asks_again() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let wanted = requests(&names(3));
    server.inject(FirestoreFault::status("UNAVAILABLE").on("Commit").after().times(1));
    assert!(store.acquire_all(&wanted).await.unwrap_err().outcome_unknown());
    let AcquireAll::Granted(grants) = store.acquire_all(&wanted).await.unwrap() else { panic!("held") };
    let document = server.document("locks/order:0").unwrap().fields;
    assert_eq!(document["fence"]["stringValue"], grants[0].fence.to_string());
}
