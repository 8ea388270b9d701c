//! Our acquire and that of the other library, which is several statements, at every step of each
//! other.

use std::sync::Arc;

use leasehold::LockId;
use leasehold::backend::{Absence, Acquire, Backend, Extend, Release};
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;

use test_support::postgres::{Acquiring, STEPS};
use test_support::postgres::{now, number, row, session, stuck};
use test_support::{StoreServer, eventually, granted, id, request, soon, ttl};

use crate::support::{connect, patient, server};

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

/// Commits wait for a standby that does not exist, but for those of sessions that ask not to.
fn stop_commits(server: &Server) {
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
}

fn let_commits_through(server: &Server) {
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
}

type Extending = tokio::task::JoinHandle<Result<Extend, leasehold::Error>>;

/// An extend of a lock with so many milliseconds left that waits for its commit, after or without
/// the advisory lock of the key.
async fn extend_in_commit(server: &Server, store: &Arc<Postgres>, mine: LockId, left: i64, guarded: bool) -> Extending {
    let count = |what: &str| {
        let query =
            format!("SELECT count(*) FROM pg_stat_activity AS a WHERE application_name = 'leasehold' AND {what}");
        number(server, &query)
    };
    let advisory = "EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND locktype = 'advisory')";
    for _ in 0..20 {
        server.sql(&format!(
            "SET synchronous_commit = local; DELETE FROM syncguard_locks;
            INSERT INTO syncguard_locks
            SELECT 'order:42', '{}', now_ms + {left}, now_ms - 60000, '000000000000001', 'order:42'
            FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms",
            mine.expose()
        ));
        let ours = store.clone();
        let extend = tokio::spawn(async move { ours.extend(&mine, ttl(60_000)).await });
        eventually("it is through or waits", async || extend.is_finished() || count("wait_event = 'SyncRep'") == 1)
            .await;
        if !extend.is_finished() && count(&format!("wait_event = 'SyncRep' AND {advisory}")) == u64::from(guarded) {
            return extend;
        }
        // It came too late: the lock's time was over.
        let_commits_through(server);
        let _ = soon("the extend", extend).await.unwrap().unwrap();
        stop_commits(server);
    }
    panic!("no extend waits for its commit")
}

async fn dead_to_others(server: &Server) {
    let dead = "SELECT expires_at_ms <= extract(epoch FROM clock_timestamp()) * 1000 - 1000 FROM syncguard_locks";
    eventually("the old expiry is past", async || server.sql(dead) == "t").await;
}

/// Their acquire, which waits for something of ours.
async fn theirs_in_the_way(server: &Server) -> tokio::task::JoinHandle<Option<u64>> {
    let mut theirs = Acquiring::new(server, "order:42").await;
    let theirs = tokio::spawn(async move { theirs.finish().await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'session' AND wait_event_type = 'Lock'";
    eventually("theirs waits for ours", async || number(server, waits) == 1).await;
    theirs
}

/// An extend that arrives in the last moment, and whose commit takes until that moment is over.
#[tokio::test]
async fn an_extend_that_succeeds_is_never_overwritten_by_theirs() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    stop_commits(&server);
    let mine = id();
    // Dead to others in 600 milliseconds.
    let extending = extend_in_commit(&server, &store, mine, -400, true).await;
    dead_to_others(&server).await;
    let theirs = theirs_in_the_way(&server).await;
    let_commits_through(&server);
    let extended = soon("the extend", extending).await.unwrap().unwrap();
    assert!(matches!(extended, Extend::Extended { .. }), "{extended:?}");
    assert_eq!(soon("theirs", theirs).await.unwrap(), None, "two holders");
    assert!(row(&server, "order:42").contains(mine.expose()));
}

/// An extend that arrives in time, and whose commit takes until the lock is dead to others.
#[tokio::test]
async fn an_extend_whose_commit_takes_too_long_does_not_succeed_beside_theirs() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    stop_commits(&server);
    let mine = id();
    let extending = extend_in_commit(&server, &store, mine, 600, false).await;
    dead_to_others(&server).await;
    let theirs = theirs_in_the_way(&server).await;
    assert!(row(&server, "order:42").contains(mine.expose()), "theirs has found it dead, and waits for the row");
    let_commits_through(&server);
    assert!(soon("theirs", theirs).await.unwrap().is_some());
    let extended = soon("the extend", extending).await.unwrap().unwrap();
    assert_eq!(extended, Extend::Absent(Absence::NotFound), "two holders");
    assert!(!row(&server, "order:42").contains(mine.expose()));
}

/// The same, while nobody wants the lock.
#[tokio::test]
async fn an_extend_whose_commit_takes_too_long_is_looked_at_again() {
    let server = server().await;
    let store = Arc::new(patient(&server).await);
    stop_commits(&server);
    let mine = id();
    let extending = extend_in_commit(&server, &store, mine, 600, false).await;
    dead_to_others(&server).await;
    let_commits_through(&server);
    let extended = soon("the extend", extending).await.unwrap().unwrap();
    assert!(matches!(extended, Extend::Extended { .. }), "{extended:?}");
    assert!(row(&server, "order:42").contains(mine.expose()));
}

/// Each round begins with a lock that is dead to others in a few milliseconds.
#[tokio::test]
async fn an_extend_and_theirs_that_race_for_the_last_millisecond_never_both_succeed() {
    let server = server().await;
    let store = connect(&server).await;
    let writer = session(&server).await;
    let write = "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
        SELECT $1, $2, now_ms - 1000 + $3::bigint, now_ms - 60000, '000000000000001', $1
        FROM floor(extract(epoch FROM clock_timestamp()) * 1000) AS now_ms";
    let write = writer.prepare(write).await.unwrap();
    let mut other = server.other_library().await;
    let (mut ours_won, mut theirs_won) = (0, 0);
    for round in 0..3000 {
        let (key, mine, theirs) = (format!("order:{round}"), id(), id());
        let left = [0, 1, 2, 4, 8, 16, 50][round % 7];
        writer.execute(&write, &[&key, &mine.expose(), &i64::from(left)]).await.unwrap();
        let (extended, granted) = soon("a round", async {
            tokio::join!(store.extend(&mine, ttl(60_000)), other.acquire(&key, &theirs, 60_000))
        })
        .await;
        let extended = matches!(extended.unwrap(), Extend::Extended { .. });
        assert!(!(extended && granted.is_some()), "round {round}: two holders");
        ours_won += u32::from(extended);
        theirs_won += u32::from(granted.is_some());
        if round >= 150 && ours_won >= 20 && theirs_won >= 20 {
            return;
        }
    }
    panic!("no race: {ours_won} to {theirs_won}");
}
