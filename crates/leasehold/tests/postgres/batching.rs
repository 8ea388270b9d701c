//! Acquires and releases that come together are sent together, each as if it were alone.

use std::sync::Arc;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Release};
use leasehold::postgres::{Postgres, PostgresOptions};
use leasehold::{Error, LockId};
use test_servers::{PgBouncer, Postgres as Server};
use test_support::postgres::{number, session, stuck};
use test_support::{StoreServer, eventually, grant, granted, request, soon};
use tokio::task::JoinHandle;

use crate::support::{joining, migrated, patient, permit, server, shared};

/// As many requests at the same time.
const MANY: usize = 64;

fn requests(name: &str) -> Vec<AcquireRequest> {
    (0..MANY).map(|number| request(&format!("{name}:{number}"))).collect()
}

fn ids(requests: &[AcquireRequest]) -> Vec<LockId> {
    requests.iter().map(|request| request.lock_id).collect()
}

/// Asks for all of them at the same time.
fn acquiring(store: &Arc<Postgres>, requests: &[AcquireRequest]) -> Vec<JoinHandle<Result<Acquire, Error>>> {
    let acquire = |request: AcquireRequest| {
        let store = store.clone();
        tokio::spawn(async move { store.acquire(&request).await })
    };
    requests.iter().cloned().map(acquire).collect()
}

fn releasing(store: &Arc<Postgres>, ids: &[LockId]) -> Vec<JoinHandle<Result<Release, Error>>> {
    let release = |id: LockId| {
        let store = store.clone();
        tokio::spawn(async move { store.release(&id).await })
    };
    ids.iter().copied().map(release).collect()
}

async fn answers<T>(tasks: Vec<JoinHandle<Result<T, Error>>>) -> Vec<T> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(soon("an answer", task).await.unwrap().unwrap());
    }
    answers
}

#[tokio::test]
async fn what_comes_together_takes_few_statements() {
    let server = Server::start();
    let store = Arc::new(migrated(&server).await);
    let wanted = requests("order");
    server.requests();
    let grants = answers(acquiring(&store, &wanted)).await;
    let acquires = server.requests();
    for (wanted, answer) in wanted.iter().zip(grants) {
        let grant = grant(Ok(answer));
        assert_eq!(grant.lock_id, wanted.lock_id);
        assert_eq!(server.fence_counter(wanted.key.as_str()), grant.fence.get().to_string());
    }
    server.requests();
    let released = answers(releasing(&store, &ids(&wanted))).await;
    let releases = server.requests();
    assert!(released.iter().all(|answer| *answer == Release::Released), "{released:?}");
    // Two by themselves, and the others by 32 at the most, if not all had come when the first were
    // answered.
    assert!((4..=16).contains(&acquires) && (4..=16).contains(&releases), "{acquires} and {releases} statements");
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
}

#[tokio::test]
async fn without_batching_each_is_sent_by_itself() {
    let server = server().await;
    let options = PostgresOptions::default().with_batching(false);
    let store = Arc::new(Postgres::connect_with(&server.url(), options).await.unwrap());
    let wanted = requests("order");
    server.requests();
    answers(acquiring(&store, &wanted)).await;
    assert_eq!(server.requests(), MANY as u64);
    answers(releasing(&store, &ids(&wanted))).await;
    assert_eq!(server.requests(), MANY as u64);
    assert!(Postgres::connect(&format!("{}?batching=perhaps", server.url())).await.is_err());
}

#[tokio::test]
async fn a_key_that_somebody_else_keeps_holds_up_nobody_who_came_with_it() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let blocker = session(&server).await;
    blocker.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('order:20'))").await.unwrap();
    let wanted = requests("order");
    let mut tasks = acquiring(&store, &wanted);
    let last = tasks.remove(20);
    answers(tasks).await;
    eventually("that one waits", async || stuck(&server) == 1).await;
    assert!(!last.is_finished());
    blocker.batch_execute("COMMIT").await.unwrap();
    answers(vec![last]).await;

    blocker.batch_execute("BEGIN; SELECT FROM syncguard_locks WHERE key = 'order:20' FOR UPDATE").await.unwrap();
    let mut tasks = releasing(&store, &ids(&wanted));
    let last = tasks.remove(20);
    answers(tasks).await;
    eventually("that one waits", async || stuck(&server) == 1).await;
    assert!(!last.is_finished());
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(answers(vec![last]).await, [Release::Released]);
}

#[tokio::test]
async fn one_key_has_one_holder_and_ids_that_ask_twice_have_one_grant() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    for round in 0..10 {
        let name = |number: usize| format!("busy-{round}:{}", number % 2);
        let first: Vec<_> = (0..MANY / 2).map(|number| request(&name(number))).collect();
        let twice: Vec<_> = first.iter().chain(&first).cloned().collect();
        let answers = answers(acquiring(&store, &twice)).await;
        let fence = |number: usize| match &answers[number] {
            Acquire::Granted(grant) => Some(grant.fence),
            _ => None,
        };
        for key in 0..2 {
            let holders: Vec<_> = (0..MANY / 2).filter(|number| number % 2 == key).filter_map(fence).collect();
            assert_eq!(holders.len(), 1, "round {round}: {answers:?}");
        }
        for number in 0..MANY / 2 {
            assert_eq!(fence(number), fence(number + MANY / 2), "round {round}, {number}");
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_released_many_times_at_once_is_released_once() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let other = request("other");
    granted(&*store, &other).await;
    for at_once in [true, false] {
        let mine = request("order:42");
        granted(&*store, &mine).await;
        let mut ids = vec![mine.lock_id; 10];
        let released = match at_once {
            true => answers(releasing(&store, &ids)).await,
            false => {
                ids.push(other.lock_id);
                let answers = store.release_many(&ids).await;
                let mut answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
                assert_eq!(answers.pop(), Some(Release::Released));
                answers
            }
        };
        assert_eq!(released.iter().filter(|answer| **answer == Release::Released).count(), 1, "{released:?}");
    }
}

#[tokio::test]
async fn all_kinds_of_locks_come_together() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    for key in ["order:10", "order:15"] {
        granted(&*store, &request(key)).await;
    }
    let mut wanted = requests("order");
    wanted[11] = shared("order:11");
    wanted[12] = request("order:12").with_mode(permit(2));
    wanted[13] = joining("order:13");
    wanted[15] = joining("order:15");
    let answers = answers(acquiring(&store, &wanted)).await;
    for (number, answer) in answers.iter().enumerate() {
        match (number, answer) {
            (10, Acquire::Held(contention)) => assert_eq!(contention.place, None),
            (15, Acquire::Held(contention)) => assert_eq!(contention.place, Some(0)),
            (10 | 15, _) => panic!("{number}: {answer:?}"),
            _ => assert!(matches!(answer, Acquire::Granted(_)), "{number}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn whoever_does_not_wait_for_the_answer_holds_up_nobody() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let wanted = requests("order");
    let mut tasks = acquiring(&store, &wanted);
    tokio::task::yield_now().await;
    // Those that were sent first, and some of those that wait or were sent together.
    let dropped: Vec<_> = (0..MANY).filter(|number| number % 3 == 0).collect();
    for number in dropped.iter().rev() {
        tasks.remove(*number).abort();
    }
    answers(tasks).await;
    // What they may have been granted, now or in a moment, can be given back.
    for number in dropped {
        eventually("it is free", async || {
            store.release(&wanted[number].lock_id).await.unwrap();
            matches!(store.acquire(&request(&format!("order:{number}"))).await, Ok(Acquire::Granted(_)))
        })
        .await;
    }
}

#[tokio::test]
async fn it_works_through_a_pooler_that_lends_connections_for_a_transaction() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let store = Arc::new(Postgres::connect(&format!("{}?wake_ups=off", pooler.url())).await.unwrap());
    for _ in 0..5 {
        let wanted = requests("order");
        answers(acquiring(&store, &wanted)).await;
        let released = answers(releasing(&store, &ids(&wanted))).await;
        assert!(released.iter().all(|answer| *answer == Release::Released), "{released:?}");
    }
}
