//! Many locks in one call: each has its own answer.

use std::time::{Duration, Instant};

use leasehold::backend::{Absence, AcquireRequest, Backend, Extend, Release};
use leasehold::{LockId, Ttl};
use test_servers::{Firestore, FirestoreFault};
use test_support::{connect, eventually, granted, request, soon};

/// So many that it takes two questions.
const MANY: usize = 40;

async fn held(store: &dyn Backend) -> (Vec<AcquireRequest>, Vec<(LockId, Ttl)>) {
    let requests: Vec<_> = (0..MANY).map(|number| request(&format!("order:{number}"))).collect();
    for request in &requests {
        granted(store, request).await;
    }
    let locks = requests.iter().map(|request| (request.lock_id, request.ttl)).collect();
    (requests, locks)
}

#[tokio::test]
async fn what_is_slow_for_some_is_so_for_no_others() {
    let server = Firestore::start();
    let store = connect(&format!("{}&timeout=2s", server.url())).await;
    let (requests, locks) = held(&*store).await;
    // The question about the last ten is never answered.
    server.inject(FirestoreFault::silence().on("RunQuery").about(requests[MANY - 1].lock_id.expose()));
    let answers = store.extend_many(&locks).await;
    assert!(answers[..30].iter().all(|answer| matches!(answer, Ok(Extend::Extended { .. }))), "{answers:?}");
    let late = |answer: &Result<Extend, leasehold::Error>| answer.as_ref().is_err_and(|error| !error.outcome_unknown());
    assert!(answers[30..].iter().all(late), "{answers:?}");
}

#[tokio::test]
async fn what_has_to_be_tried_again_keeps_to_the_same_deadline() {
    let server = Firestore::start();
    let store = connect(&format!("{}&timeout=2s", server.url())).await;
    let (_, locks) = held(&*store).await;
    server.inject(FirestoreFault::delay(Duration::from_millis(1700)).on("RunQuery").times(2));
    server.inject(FirestoreFault::status("ABORTED").on("BatchWrite"));
    server.inject(FirestoreFault::status("ABORTED").on("Commit"));
    let begun = Instant::now();
    let answers = store.extend_many(&locks).await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert!(begun.elapsed() < Duration::from_millis(3600), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_lock_that_changes_hands_in_between_is_left_alone_and_the_others_are_written() {
    let server = Firestore::start();
    let (store, others) = (connect(&server.url()).await, connect(&server.url()).await);
    let (requests, locks) = held(&*store).await;
    let theirs = request("order:3");
    server.inject(FirestoreFault::delay(Duration::from_millis(500)).after().on("RunQuery").times(2));
    let in_between = async {
        eventually("the locks have been read", async || server.fault_hits() == 2).await;
        others.force_release(&theirs.key, None).await.unwrap();
        granted(&*others, &theirs).await;
    };
    let (answers, ()) = tokio::join!(store.extend_many(&locks), in_between);
    for (index, answer) in answers.iter().enumerate() {
        match index {
            3 => assert!(matches!(answer, Ok(Extend::Absent(Absence::NotFound))), "{answer:?}"),
            _ => assert!(matches!(answer, Ok(Extend::Extended { .. })), "{index}: {answer:?}"),
        }
    }
    server.clear_faults();
    let ids: Vec<_> = requests.iter().map(|request| request.lock_id).collect();
    let released = store.release_many(&ids).await;
    assert_eq!(released.iter().filter(|answer| matches!(answer, Ok(Release::Released))).count(), MANY - 1);
    assert!(others.is_locked(&theirs.key).await.unwrap());
}

#[tokio::test]
async fn each_lock_gets_the_time_that_was_asked_for_it() {
    let server = Firestore::start();
    let store = connect(&server.url()).await;
    let (_, mut locks) = held(&*store).await;
    for (index, (_, ttl)) in locks.iter_mut().enumerate() {
        *ttl = Ttl::from_millis(100_000 + u64::try_from(index).unwrap() * 1000).unwrap();
    }
    let answers = store.extend_many(&locks).await;
    for (index, answer) in answers.into_iter().enumerate() {
        let Ok(Extend::Extended { expires_at }) = answer else { panic!("{index}: {answer:?}") };
        let document = server.document(&format!("locks/order:{index}")).unwrap().fields;
        assert_eq!(document["expiresAtMs"]["integerValue"], expires_at.as_millis().to_string(), "{index}");
    }
}

#[tokio::test]
async fn tokens_that_are_no_longer_taken_are_replaced_for_all() {
    let server = Firestore::builder().tls().credentials().start();
    let store = connect(&server.url()).await;
    let (_, locks) = held(&*store).await;
    for _ in 0..3 {
        server.expire_tokens();
        let answers = soon("all of them", store.extend_many(&locks)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Extend::Extended { .. }))), "{answers:?}");
    }
    assert_eq!(server.calls("Token"), 4);
}
