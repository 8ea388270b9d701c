//! Many locks asked for in one statement: an answer for each, and none is held up or spoilt by
//! another.

use std::sync::Arc;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Event, LookupBy, Topic};
use leasehold::postgres::Postgres;
use leasehold::{Error, ErrorCode, Fence, Verdict};
use test_servers::{PgBouncer, Postgres as Server};
use test_support::postgres::{Acquiring, STEPS, number, session, stuck};
use test_support::{StoreServer, check, complaints, eventually, granted, held, request, soon};

use crate::support::{connect, joining, migrated, patient, permit, server, shared};

/// As many as one statement asks for.
const MOST: usize = 32;

fn requests() -> Vec<AcquireRequest> {
    (0..MOST).map(|n| request(&format!("k{n}"))).collect()
}

/// Which of them were not granted.
fn refused(answers: &[Result<Acquire, Error>]) -> Vec<usize> {
    assert_eq!(answers.len(), MOST);
    (0..MOST).filter(|n| !matches!(answers[*n], Ok(Acquire::Granted(_)))).collect()
}

/// How many statements that acquire came to their end since this was last asked.
fn acquires(server: &Server) -> u64 {
    let calls =
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query ~ '_acquire_' AND query !~ 'pg_stat'";
    let calls = number(server, calls);
    server.sql("SELECT pg_stat_statements_reset()");
    calls
}

#[tokio::test]
async fn free_keys_are_granted_in_one_statement_with_the_rows_of_a_single_acquire() {
    let server = Server::start();
    let store = migrated(&server).await;
    let wanted = requests();
    server.requests();
    let answers = store.acquire_together(&wanted).await;
    assert_eq!(server.requests(), 1);
    for (request, answer) in wanted.iter().zip(&answers) {
        let Ok(Acquire::Granted(grant)) = answer else { panic!("{answer:?}") };
        assert_eq!(grant.lock_id, request.lock_id);
        let record = store.lookup(LookupBy::Key(&request.key)).await.unwrap().unwrap();
        assert_eq!((record.lock_id, record.fence), (grant.lock_id, grant.fence));
        assert_eq!((record.acquired_at, record.expires_at), (grant.acquired_at, grant.expires_at));
        assert_eq!(record.holder.as_ref(), Some(&request.holder));
        assert_eq!(server.fence_counter(request.key.as_str()), grant.fence.get().to_string());
    }
    granted(&store, &request("alone")).await;
    let written = |key: &str| {
        let columns = "expires_at_ms - acquired_at_ms, length(fence), user_key = key, details - 'lockId', details->>'lockId' = lock_id";
        server.sql(&format!("SELECT {columns} FROM syncguard_locks WHERE key = '{key}'"))
    };
    assert_eq!(written("k7"), written("alone"));

    // Who has them is told in one statement, too.
    server.requests();
    for (answer, grant) in store.acquire_together(&requests()).await.into_iter().zip(answers) {
        let (Ok(Acquire::Held(contention)), Ok(Acquire::Granted(grant))) = (answer, grant) else { panic!() };
        assert_eq!((contention.fence, contention.holders), (Some(grant.fence), 1));
        assert_eq!((contention.acquired_at, contention.expires_at), (grant.acquired_at, grant.expires_at));
    }
    assert_eq!(server.requests(), 1);
    assert!(store.acquire_together(&[]).await.is_empty());
}

#[tokio::test]
async fn more_than_fit_into_one_statement_go_in_several() {
    let server = server().await;
    let store = connect(&server).await;
    let wanted: Vec<_> = (0..=2 * MOST).map(|n| request(&format!("k{n}"))).collect();
    let answers = store.acquire_together(&wanted).await;
    assert_eq!(answers.len(), wanted.len());
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Acquire::Granted(_)))), "{answers:?}");
}

#[tokio::test]
async fn a_key_about_which_somebody_else_decides_holds_up_none_of_the_others() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    for (step, what) in STEPS.iter().enumerate().skip(2).take(3) {
        server.sql("TRUNCATE syncguard_locks");
        let mut theirs = Acquiring::new(&server, "k9").await;
        theirs.advance(step).await;
        let (ours, wanted) = (store.clone(), requests());
        let acquiring = tokio::spawn(async move { ours.acquire_together(&wanted).await });
        let there = "SELECT count(*) FROM syncguard_locks WHERE key <> 'k9'";
        eventually("all but one are granted", async || number(&server, there) == MOST as u64 - 1).await;
        eventually("that one waits", async || stuck(&server) == 1).await;
        assert!(!acquiring.is_finished(), "{what:?}");
        assert!(theirs.finish().await.is_some());
        assert_eq!(refused(&soon("the answers", acquiring).await.unwrap()), [9], "{what:?}");
    }
    assert_eq!(number(&server, "SELECT sum(deadlocks) FROM pg_stat_database"), 0);
}

#[tokio::test]
async fn a_row_or_a_table_that_somebody_else_uses_is_waited_for_by_its_own_request_alone() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    // A lock whose time is over: whoever takes it must have the row.
    granted(&store, &request("k9")).await;
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
    let blocker = session(&server).await;
    blocker.batch_execute("BEGIN; SELECT FROM syncguard_locks WHERE key = 'k9' FOR UPDATE").await.unwrap();
    acquires(&server);
    let (ours, wanted) = (store.clone(), requests());
    let acquiring = tokio::spawn(async move { ours.acquire_together(&wanted).await });
    let there = "SELECT count(*) FROM syncguard_locks WHERE expires_at_ms > 1";
    eventually("all but one are granted", async || number(&server, there) == MOST as u64 - 1).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(refused(&soon("the answers", acquiring).await.unwrap()), [0usize; 0]);
    assert_eq!(acquires(&server), 2, "one statement for all, and one for the row");

    // Nobody can be granted anything; all are, in the end, by themselves.
    server.sql("TRUNCATE syncguard_locks");
    blocker.batch_execute("BEGIN; LOCK TABLE syncguard_fence_counters IN EXCLUSIVE MODE").await.unwrap();
    let (ours, wanted) = (store.clone(), requests());
    let acquiring = tokio::spawn(async move { ours.acquire_together(&wanted).await });
    let alone = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query NOT LIKE '%_many_%'";
    eventually("the statement for all gives up", async || number(&server, alone) > 0).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(refused(&soon("the answers", acquiring).await.unwrap()), [0usize; 0]);
}

#[tokio::test]
async fn what_is_wrong_with_one_of_them_is_the_error_of_that_one_alone() {
    let server = server().await;
    let store = patient(&server).await;
    // Somebody else's lock id.
    let other = request("elsewhere");
    granted(&store, &other).await;
    // A row that the server refuses.
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON syncguard_locks FOR EACH ROW
        WHEN (new.key = 'k21') EXECUTE FUNCTION refuse()",
    );
    for poisoned in [false, true] {
        let mut wanted = requests();
        wanted[5].lock_id = other.lock_id;
        // Counters that have come to their end, and beyond it.
        server.set_fence_counter("k12", &Fence::MAX.get().to_string());
        server.set_fence_counter("k13", &i64::MAX.to_string());
        if !poisoned {
            wanted[21] = request("k21b");
        }
        let answers = store.acquire_together(&wanted).await;
        let expected = if poisoned { vec![5, 12, 13, 21] } else { vec![5, 12, 13] };
        assert_eq!(refused(&answers), expected);
        let error = |n: usize| answers[n].as_ref().unwrap_err();
        assert_eq!(
            (error(5).code(), error(5).outcome_unknown()),
            (ErrorCode::InvalidArgument, false),
            "{:?}",
            error(5)
        );
        for n in [12, 13] {
            assert_eq!((error(n).code(), error(n).outcome_unknown()), (ErrorCode::Internal, false), "{:?}", error(n));
        }
        assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), (MOST - expected.len() + 1) as u64);
        for wanted in &wanted {
            if wanted.lock_id != other.lock_id {
                let _ = store.release(&wanted.lock_id).await.unwrap();
            }
        }
    }
    assert!(store.is_locked(&other.key).await.unwrap(), "what had the lock id keeps it");
}

#[tokio::test]
async fn fences_go_on_from_the_counter_and_never_below_the_clock() {
    let server = server().await;
    let store = connect(&server).await;
    let ahead = test_support::postgres::now(&server) * 10 + 1_000_000_000;
    server.set_fence_counter("k1", &ahead.to_string());
    server.set_fence_counter("k2", "7");
    server.set_fence_counter("k3", "-7");
    let before = test_support::postgres::now(&server) * 10;
    let answers = store.acquire_together(&requests()).await;
    let fences: Vec<_> = answers.into_iter().map(|answer| test_support::grant(answer).fence.get()).collect();
    assert_eq!(fences[1], ahead + 1);
    let after = test_support::postgres::now(&server) * 10 + 10;
    for n in [0, 2, 3, 4] {
        assert!((before..after).contains(&fences[n]), "{n}: {} between {before} and {after}", fences[n]);
    }
}

#[tokio::test]
async fn a_key_or_lock_id_that_is_wanted_twice_is_granted_once() {
    let server = server().await;
    let store = connect(&server).await;
    let (one, other) = (request("k1"), request("k1"));
    let twin = request("k2").with_lock_id(one.lock_id);
    acquires(&server);
    let answers = store.acquire_together(&[one.clone(), other, twin, request("k3"), one.clone()]).await;
    // The one that is refused with an error does not come to its end.
    assert_eq!(acquires(&server), 3, "one statement for two, and each other by itself");
    let first = answers[0].as_ref().unwrap();
    assert!(matches!(answers[1], Ok(Acquire::Held(_))), "{answers:?}");
    assert_eq!(answers[2].as_ref().unwrap_err().code(), ErrorCode::InvalidArgument);
    assert!(matches!(answers[3], Ok(Acquire::Granted(_))), "{answers:?}");
    let (Acquire::Granted(first), Ok(Acquire::Granted(again))) = (first, &answers[4]) else { panic!("{answers:?}") };
    assert_eq!(first.fence, again.fence, "the same grant");
}

#[tokio::test]
async fn whoever_watches_is_told_of_each_grant() {
    let server = server().await;
    let store = connect(&server).await;
    let mut watching = store.subscribe(Topic::Granted).await.unwrap();
    let answers = store.acquire_together(&requests()).await;
    let mut told = Vec::new();
    while told.len() < MOST {
        match soon("a grant", watching.next()).await {
            Some(Event::Granted { key, fence, .. }) => told.push((key.as_str().to_owned(), fence)),
            Some(Event::Missed) => {}
            other => panic!("{other:?}"),
        }
    }
    for (request, answer) in requests().iter().zip(answers) {
        assert!(told.contains(&(request.key.as_str().to_owned(), test_support::grant(answer).fence)));
    }
}

#[tokio::test]
async fn those_in_line_readers_and_permits_are_heeded() {
    let server = server().await;
    let store = connect(&server).await;
    let first = request("k1");
    granted(&store, &first).await;
    let waits = joining("k1");
    held(&store, &waits).await;
    store.release(&first.lock_id).await.unwrap();
    granted(&store, &shared("k2")).await;
    granted(&store, &request("k3").with_mode(permit(2))).await;
    let mut wanted = requests();
    wanted[4] = joining("k4");
    wanted[5] = shared("k5");
    wanted[6] = request("k6").with_mode(permit(2));
    let answers = store.acquire_together(&wanted).await;
    assert_eq!(refused(&answers), [1, 2, 3]);
    granted(&store, &waits).await;
    // Who joins the line has a place there.
    let mut wanted = requests();
    wanted[4] = joining("k4");
    let answers = store.acquire_together(&wanted).await;
    let Ok(Acquire::Held(contention)) = &answers[4] else { panic!("{answers:?}") };
    assert_eq!(contention.place, Some(0));
    assert_eq!(server.sql("SELECT key FROM syncguard_locks_line"), "k4");
}

#[tokio::test]
async fn a_connection_that_is_lost_leaves_every_outcome_unknown_and_no_server_none() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    // The statement stops in the middle, without waiting for a lock.
    server.sql(
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(60); RETURN new; END $$;
        CREATE TRIGGER stop BEFORE INSERT ON syncguard_locks FOR EACH ROW
        WHEN (new.key = 'k21') EXECUTE FUNCTION stop()",
    );
    let (ours, wanted) = (store.clone(), requests());
    let acquiring = tokio::spawn(async move { ours.acquire_together(&wanted).await });
    let sleeps = "application_name = 'leasehold' AND wait_event = 'PgSleep'";
    eventually("it sleeps", async || server.terminate_backends(sleeps) == 1).await;
    for answer in soon("errors", acquiring).await.unwrap() {
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::ServiceUnavailable, true), "{error:?}");
    }
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
    server.kill();
    eventually("a connection that is gone is noticed", async || {
        let answers = store.acquire_together(&requests()).await;
        answers.into_iter().all(|answer| !answer.unwrap_err().outcome_unknown())
    })
    .await;
}

#[tokio::test]
async fn a_database_that_was_migrated_before_there_was_such_a_function_works_and_says_what_to_run() {
    let server = server().await;
    let before = connect(&server).await;
    let drop = "DO $$ BEGIN EXECUTE format('DROP FUNCTION %s', 'syncguard_locks_acquire_many_v2'::regproc::oid::regprocedure); END $$";
    server.sql(drop);
    let store = connect(&server).await;
    for store in [&before, &store] {
        let wanted = requests();
        assert_eq!(refused(&store.acquire_together(&wanted).await), [0usize; 0]);
        let checks = store.examine().await.unwrap();
        assert_eq!(complaints(&checks), [("functions", Verdict::Warn)]);
        let found = check(&checks, "functions");
        assert!(found.detail.contains("acquire_many") && found.detail.contains("leasehold migrate"), "{found:?}");
        for wanted in wanted {
            store.release(&wanted.lock_id).await.unwrap();
        }
    }
    store.migrate().await.unwrap();
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
    server.requests();
    assert_eq!(refused(&store.acquire_together(&requests()).await), [0usize; 0]);
    assert_eq!(server.requests(), 1, "the handle needs no restart");
}

#[tokio::test]
async fn it_works_through_a_pooler_that_lends_connections_for_a_transaction() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let store = Arc::new(Postgres::connect(&format!("{}?wake_ups=off", pooler.url())).await.unwrap());
    let mut calls = tokio::task::JoinSet::new();
    for task in 0..8 {
        let store = store.clone();
        calls.spawn(async move {
            for _ in 0..10 {
                let wanted: Vec<_> = (0..MOST).map(|n| request(&format!("t{task}:k{n}"))).collect();
                assert_eq!(refused(&store.acquire_together(&wanted).await), [0usize; 0]);
                let ids: Vec<_> = wanted.iter().map(|wanted| wanted.lock_id).collect();
                for answer in store.release_many(&ids).await {
                    assert_eq!(answer.unwrap(), leasehold::backend::Release::Released);
                }
            }
        });
    }
    while let Some(done) = soon("the calls", calls.join_next()).await {
        done.unwrap();
    }
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks"), 0);
}
