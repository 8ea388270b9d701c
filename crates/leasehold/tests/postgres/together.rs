//! Our acquire and that of the other library, which is several statements, at every step of each
//! other.

use std::sync::Arc;

use leasehold::LockId;
use leasehold::backend::{Acquire, Backend, Extend, Release};
use test_servers::Postgres as Server;

use test_support::postgres::{Acquiring, STEPS};
use test_support::postgres::{now, number, row, session, stuck};
use test_support::{eventually, granted, id, request, soon, ttl};

use crate::support::{connect, server};

/// What there may be under a key before anybody wants it.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    DeadLock,
    CounterAlone,
    CounterAhead,
}

const BEFORE: [Before; 4] = [Before::Nothing, Before::DeadLock, Before::CounterAlone, Before::CounterAhead];

/// Makes it so, and returns the last fence.
fn prepare(server: &Server, before: Before, key: &str) -> u64 {
    server.sql("TRUNCATE syncguard_locks, syncguard_fence_counters");
    match before {
        Before::Nothing => 0,
        Before::DeadLock => test_support::postgres::write(server, key, 60_000, -5_000).fence,
        Before::CounterAlone | Before::CounterAhead => {
            let fence = if let Before::CounterAhead = before { now(server) * 10 + 1_000_000_000 } else { 7 };
            server.sql(&format!("INSERT INTO syncguard_fence_counters VALUES ('fence:{key}', {fence}, '{key}')"));
            fence
        }
    }
}

/// Whoever was granted the lock, and nobody else, has the row, with a fence above the last.
fn assert_only(server: &Server, winner: (&LockId, u64), last: u64, what: &str) {
    let row = row(server, "order:42");
    assert!(row.contains(winner.0.expose()) && row.contains(&format!("|{:015}|", winner.1)), "{what}: {row}");
    assert!(winner.1 > last, "{what}: {} after {last}", winner.1);
    assert_eq!(number(server, "SELECT max(fence) FROM syncguard_fence_counters"), winner.1, "{what}");
}

#[tokio::test]
async fn ours_that_comes_between_any_two_steps_of_theirs_never_holds_together_with_it() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    for before in BEFORE {
        for steps in 0..=STEPS.len() {
            let what = format!("{before:?}, after {:?}", &STEPS[..steps]);
            let last = prepare(&server, before, "order:42");
            let mut theirs = Acquiring::new(&server, "order:42").await;
            theirs.advance(steps).await;
            let (mine, ours) = (request("order:42"), store.clone());
            let wanted = mine.clone();
            let ours = tokio::spawn(async move { ours.acquire(&wanted).await.unwrap() });
            // Their advisory lock keeps ours waiting from the second step to the last.
            eventually("ours is through or waits", async || ours.is_finished() || stuck(&server) == 1).await;
            assert_eq!(ours.is_finished(), !(2..STEPS.len()).contains(&steps), "{what}");
            let their_fence = soon("theirs", theirs.finish()).await;
            match (soon("ours", ours).await.unwrap(), their_fence) {
                (Acquire::Granted(grant), None) => {
                    assert!(steps < 2, "{what}");
                    assert_only(&server, (&mine.lock_id, grant.fence.get()), last, &what);
                }
                (Acquire::Held(contention), Some(fence)) => {
                    assert_eq!(contention.holder, None, "{what}");
                    assert_only(&server, (&theirs.id, fence), last, &what);
                }
                outcome => panic!("{what}: {outcome:?}"),
            }
        }
    }
}

#[tokio::test]
async fn theirs_that_comes_while_ours_is_anywhere_on_its_way_finds_the_lock_held() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    // What a third session holds on to, so that ours cannot go on: the row of the lock, or that of
    // the counter.
    for (before, obstacle) in [
        (Before::DeadLock, "SELECT FROM syncguard_locks FOR UPDATE"),
        (Before::DeadLock, "SELECT FROM syncguard_fence_counters FOR UPDATE"),
        (Before::CounterAhead, "SELECT FROM syncguard_fence_counters FOR UPDATE"),
    ] {
        let last = prepare(&server, before, "order:42");
        let third = session(&server).await;
        third.batch_execute(&format!("BEGIN; {obstacle}")).await.unwrap();
        let (mine, ours) = (request("order:42"), store.clone());
        let wanted = mine.clone();
        let ours = tokio::spawn(async move { ours.acquire(&wanted).await.unwrap() });
        eventually("ours waits", async || stuck(&server) == 1).await;
        let mut theirs = Acquiring::new(&server, "order:42").await;
        let theirs = tokio::spawn(async move { theirs.finish().await });
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'session' AND wait_event = 'advisory'";
        eventually("theirs waits for ours", async || number(&server, waits) == 1).await;
        third.batch_execute("COMMIT").await.unwrap();
        let Acquire::Granted(grant) = soon("ours", ours).await.unwrap() else { panic!("{obstacle}") };
        assert_eq!(soon("theirs", theirs).await.unwrap(), None, "{obstacle}");
        assert_only(&server, (&mine.lock_id, grant.fence.get()), last, obstacle);
    }
}

#[tokio::test]
async fn a_release_between_any_two_steps_of_theirs_leaves_one_lock_or_none() {
    let server = server().await;
    let store = connect(&server).await;
    for steps in 0..=STEPS.len() {
        prepare(&server, Before::Nothing, "order:42");
        let mine = request("order:42");
        let last = granted(&store, &mine).await.fence.get();
        let mut theirs = Acquiring::new(&server, "order:42").await;
        theirs.advance(steps).await;
        assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
        match theirs.finish().await {
            Some(fence) => assert_only(&server, (&theirs.id, fence), last, &format!("{steps}")),
            None => assert_eq!((row(&server, "order:42"), steps > 2), (String::new(), true)),
        }
    }
}

/// An extend that arrives in the last moment, and whose commit takes until that moment is over.
#[tokio::test]
async fn an_extend_that_succeeds_is_never_overwritten_by_theirs() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    // Commits wait for a standby that does not exist, but for those of sessions that ask not to.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND wait_event = 'SyncRep'";
    let mine = id();
    let mut extending = None;
    for _ in 0..20 {
        // Dead to others in 600 milliseconds.
        server.sql(&format!(
            "SET synchronous_commit = local; DELETE FROM syncguard_locks;
            INSERT INTO syncguard_locks SELECT 'order:42', '{}', now_ms - 400, now_ms - 60000, '000000000000001', 'order:42'
            FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms",
            mine.expose()
        ));
        let ours = store.clone();
        let extend = tokio::spawn(async move { ours.extend(&mine, ttl(60_000)).await });
        eventually("the extend is through or waits", async || extend.is_finished() || number(&server, waits) == 1)
            .await;
        if !extend.is_finished() {
            extending = Some(extend);
            break;
        }
    }
    let extending = extending.expect("an extend that waits for its commit");
    let dead = "SELECT expires_at_ms <= extract(epoch FROM clock_timestamp()) * 1000 - 1000 FROM syncguard_locks";
    eventually("the old expiry is past", async || server.sql(dead) == "t").await;
    let mut theirs = Acquiring::new(&server, "order:42").await;
    let theirs = tokio::spawn(async move { theirs.finish().await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'session' AND wait_event_type = 'Lock'";
    eventually("theirs waits for ours", async || number(&server, waits) == 1).await;
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    let extended = soon("the extend", extending).await.unwrap().unwrap();
    assert!(matches!(extended, Extend::Extended { .. }), "{extended:?}");
    assert_eq!(soon("theirs", theirs).await.unwrap(), None, "two holders");
    assert!(row(&server, "order:42").contains(mine.expose()));
}
