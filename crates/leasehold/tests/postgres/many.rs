//! Many locks in one statement: an answer for each, and none is held up by another.

use std::sync::Arc;

use leasehold::backend::{Absence, AcquireRequest, Backend, Event, Extend, MOST_AT_ONCE, Release, Topic};
use leasehold::postgres::Postgres;
use leasehold::{ErrorCode, LockId, Ttl};
use test_servers::Postgres as Server;
use test_support::postgres::{number, ours, session, stuck};
use test_support::{StoreServer, eventually, granted, id, request, soon, ttl};

use crate::support::{migrated, patient, server};

/// As many locks as one call is about.
async fn take_many(store: &Postgres) -> Vec<AcquireRequest> {
    let mut taken = Vec::new();
    for n in 0..MOST_AT_ONCE {
        let wanted = request(&format!("k{n}"));
        granted(store, &wanted).await;
        taken.push(wanted);
    }
    taken
}

fn with_ttl(locks: &[AcquireRequest], millis: u64) -> Vec<(LockId, Ttl)> {
    locks.iter().map(|lock| (lock.lock_id, ttl(millis))).collect()
}

fn ids(locks: &[AcquireRequest]) -> Vec<LockId> {
    locks.iter().map(|lock| lock.lock_id).collect()
}

fn is_extended<E>(answer: &Result<Extend, E>) -> bool {
    matches!(answer, Ok(Extend::Extended { .. }))
}

#[tokio::test]
async fn many_are_extended_and_released_in_one_statement_with_an_answer_for_each() {
    let server = Server::start();
    let store = migrated(&server).await;
    let mut locks = take_many(&store).await;
    locks[7].lock_id = id();
    store.release(&locks[20].lock_id).await.unwrap();
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1 WHERE key = 'k33'");
    server.requests();

    let mut wanted = with_ttl(&locks, 60_000);
    wanted[5].1 = ttl(90_000);
    let answers: Vec<_> = store.extend_many(&wanted).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((answers.len(), server.requests()), (MOST_AT_ONCE, 1));
    for (n, answer) in answers.iter().enumerate() {
        match n {
            7 | 20 => assert_eq!(*answer, Extend::Absent(Absence::NotFound), "{n}"),
            33 => assert_eq!(*answer, Extend::Absent(Absence::Expired)),
            _ => {
                let Extend::Extended { expires_at } = answer else { panic!("{n}: {answer:?}") };
                let stored = number(&server, &format!("SELECT expires_at_ms FROM syncguard_locks WHERE key = 'k{n}'"));
                assert_eq!(expires_at.as_millis(), stored, "{n}");
            }
        }
    }
    let left = "SELECT max(expires_at_ms) - min(expires_at_ms) FROM syncguard_locks WHERE key IN ('k4', 'k5')";
    assert_eq!(number(&server, left), 30_000, "each has its own ttl");

    server.requests();
    let answers: Vec<_> = store.release_many(&ids(&locks)).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((answers.len(), server.requests()), (MOST_AT_ONCE, 1));
    for (n, answer) in answers.into_iter().enumerate() {
        let expected = match n {
            7 | 20 => Release::Absent(Absence::NotFound),
            33 => Release::Absent(Absence::Expired),
            _ => Release::Released,
        };
        assert_eq!(answer, expected, "{n}");
    }
    assert_eq!(server.sql("SELECT key FROM syncguard_locks"), "k7", "the lock that was not asked for");
    assert!(store.extend_many(&[]).await.is_empty() && store.release_many(&[]).await.is_empty());
}

#[tokio::test]
async fn a_lock_whose_row_somebody_else_uses_holds_up_none_of_the_others() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let locks = take_many(&store).await;
    let blocker = session(&server).await;
    let hold = "BEGIN; SELECT FROM syncguard_locks WHERE key = 'k9' FOR UPDATE";

    blocker.batch_execute(hold).await.unwrap();
    let (ours, wanted) = (store.clone(), with_ttl(&locks, 600_000));
    let extending = tokio::spawn(async move { ours.extend_many(&wanted).await });
    let extended = "SELECT count(*) FROM syncguard_locks WHERE expires_at_ms - acquired_at_ms > 500000";
    eventually("all but one are extended", async || number(&server, extended) == MOST_AT_ONCE as u64 - 1).await;
    eventually("that one waits", async || stuck(&server) == 1).await;
    assert!(!extending.is_finished());
    blocker.batch_execute("COMMIT").await.unwrap();
    let answers = soon("the extends", extending).await.unwrap();
    assert!(answers.iter().all(is_extended), "{answers:?}");

    blocker.batch_execute(hold).await.unwrap();
    let (ours, wanted) = (store.clone(), ids(&locks));
    let releasing = tokio::spawn(async move { ours.release_many(&wanted).await });
    eventually("all but one are free", async || server.sql("SELECT count(*) FROM syncguard_locks") == "1").await;
    eventually("that one waits", async || stuck(&server) == 1).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    let answers = soon("the releases", releasing).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Release::Released))), "{answers:?}");
}

#[tokio::test]
async fn a_lock_whose_row_somebody_else_uses_keeps_the_answers_for_others_waiting_for_a_part_of_the_timeout_only() {
    let server = server().await;
    let options = "timeout=8s&options=-c%20lock_timeout%3D60s";
    let store = Arc::new(Postgres::connect(&format!("{}?{options}", server.url())).await.unwrap());
    let locks = take_many(&store).await;
    let blocker = session(&server).await;
    blocker.batch_execute("BEGIN; SELECT FROM syncguard_locks WHERE key = 'k9' FOR UPDATE").await.unwrap();
    // What takes the whole timeout.
    let alone = tokio::spawn({
        let (store, id) = (store.clone(), locks[9].lock_id);
        async move { store.extend(&id, ttl(60_000)).await }
    });
    eventually("it waits for the row", async || stuck(&server) == 1).await;
    let answers = store.extend_many(&with_ttl(&locks, 60_000)).await;
    assert!(!alone.is_finished(), "the others were kept waiting for the whole timeout");
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(is_extended(answer), n != 9, "{n}: {answer:?}");
    }
    alone.abort();
}

#[tokio::test]
async fn rows_that_somebody_else_uses_leave_connections_for_the_next_call() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let locks = take_many(&store).await;
    let blocker = session(&server).await;
    blocker.batch_execute("BEGIN; SELECT FROM syncguard_locks WHERE key LIKE 'k1%' FOR UPDATE").await.unwrap();
    let (stuck_ones, free_ones): (Vec<_>, Vec<_>) =
        locks.into_iter().partition(|lock| lock.key.as_str().starts_with("k1"));
    let (ours, wanted) = (store.clone(), with_ttl(&stuck_ones, 60_000));
    let extending = tokio::spawn(async move { ours.extend_many(&wanted).await });
    eventually("some wait", async || stuck(&server) > 0).await;
    let answers = soon("the others", store.extend_many(&with_ttl(&free_ones, 60_000))).await;
    assert!(!extending.is_finished() && answers.iter().all(is_extended), "{answers:?}");
    blocker.batch_execute("COMMIT").await.unwrap();
    let answers = soon("the extends", extending).await.unwrap();
    assert!(answers.iter().all(is_extended), "{answers:?}");
}

#[tokio::test]
async fn what_the_server_refuses_for_one_lock_fails_for_no_other() {
    let server = server().await;
    let store = patient(&server).await;
    let locks = take_many(&store).await;
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON syncguard_locks FOR EACH ROW
        WHEN (old.key = 'k40') EXECUTE FUNCTION refuse()",
    );
    let answers = store.extend_many(&with_ttl(&locks, 60_000)).await;
    let failed: Vec<_> = (0..MOST_AT_ONCE).filter(|n| !is_extended(&answers[*n])).collect();
    assert_eq!(failed, [40]);
    let answers = store.release_many(&ids(&locks)).await;
    let failed: Vec<_> = (0..MOST_AT_ONCE).filter(|n| !matches!(answers[*n], Ok(Release::Released))).collect();
    assert_eq!(failed, [40]);
    assert_eq!(server.sql("SELECT key FROM syncguard_locks"), "k40");
}

#[tokio::test]
async fn a_connection_that_is_lost_leaves_every_outcome_unknown_and_no_server_none() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    let locks = take_many(&store).await;
    let blocker = session(&server).await;
    for extends in [true, false] {
        blocker.batch_execute("BEGIN; LOCK TABLE syncguard_locks").await.unwrap();
        let (store, locks) = (store.clone(), locks.clone());
        let call = tokio::spawn(async move {
            match extends {
                true => {
                    store.extend_many(&with_ttl(&locks, 60_000)).await.into_iter().map(Result::unwrap_err).collect()
                }
                false => store.release_many(&ids(&locks)).await.into_iter().map(Result::unwrap_err).collect::<Vec<_>>(),
            }
        });
        eventually("it waits", async || stuck(&server) == 1).await;
        assert_eq!(server.terminate_backends("application_name = 'leasehold' AND wait_event_type = 'Lock'"), 1);
        let errors = soon("errors", call).await.unwrap();
        assert_eq!(errors.len(), MOST_AT_ONCE);
        for error in errors {
            assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, true), "{error:?}");
        }
        blocker.batch_execute("COMMIT").await.unwrap();
    }
    assert_eq!(server.sql("SELECT count(*) FROM syncguard_locks"), MOST_AT_ONCE.to_string());
    server.kill();
    eventually("a connection that is gone is noticed", async || {
        let answers = store.release_many(&ids(&locks)).await;
        assert_eq!(answers.len(), MOST_AT_ONCE);
        answers.into_iter().all(|answer| !answer.unwrap_err().outcome_unknown())
    })
    .await;
}

#[tokio::test]
async fn whoever_waits_for_one_of_many_released_locks_is_told() {
    let server = server().await;
    let store = patient(&server).await;
    let locks = take_many(&store).await;
    let mut waiting = store.subscribe(Topic::Freed(&locks[50].key)).await.unwrap();
    for answer in store.release_many(&ids(&locks)).await {
        assert_eq!(answer.unwrap(), Release::Released);
    }
    assert_eq!(soon("the notification", waiting.next()).await, Some(Event::Freed));
}

/// Two that go through the same locks in opposite directions, and single calls for all of them.
#[tokio::test]
async fn calls_for_the_same_locks_are_never_in_a_deadlock() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    for _ in 0..5 {
        let locks = take_many(&store).await;
        let mut calls = tokio::task::JoinSet::new();
        for backwards in [false, true] {
            let (store, mut wanted) = (store.clone(), with_ttl(&locks, 60_000));
            if backwards {
                wanted.reverse();
            }
            calls.spawn(async move { store.extend_many(&wanted).await.iter().all(is_extended) });
        }
        for lock in locks.clone() {
            let store = store.clone();
            calls.spawn(async move { is_extended(&store.extend(&lock.lock_id, ttl(60_000)).await) });
        }
        while let Some(extended) = soon("the extends", calls.join_next()).await {
            assert!(extended.unwrap());
        }
        let forwards = ids(&locks);
        let backwards: Vec<_> = forwards.iter().copied().rev().collect();
        let both = async { tokio::join!(store.release_many(&forwards), store.release_many(&backwards)) };
        let (one, mut other) = soon("the releases", both).await;
        other.reverse();
        for (one, other) in one.into_iter().zip(other) {
            let released = [one.unwrap(), other.unwrap()].iter().filter(|it| **it == Release::Released).count();
            assert_eq!(released, 1, "each is released once");
        }
    }
    assert_eq!(number(&server, "SELECT sum(deadlocks) FROM pg_stat_database"), 0);
    assert_eq!(ours(&server, "wait_event_type = 'Lock'"), 0);
}
