//! The line in front of a key: who is in it, who is called, and what others see meanwhile.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::{Absence, Acquire, Backend, Event, Line, Mode, Release, Subscription, Topic};
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::postgres::{channel, number, ours, row, session, stuck};
use test_support::{StoreServer, eventually, granted, held, key, request, soon};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::support::{connect, joining, permit, server, shared};

async fn nothing_comes(subscription: &mut Subscription) {
    let told = tokio::time::timeout(Duration::from_millis(150), subscription.next()).await;
    assert!(told.is_err(), "{told:?}");
}

/// The line of a key as it is stored: for each place whether it was called, in order.
fn line(server: &Server, key: &str) -> String {
    server.sql(&format!("SELECT called FROM syncguard_locks_line WHERE key = '{key}' ORDER BY place"))
}

#[tokio::test]
async fn a_release_calls_the_first_and_keeps_the_key_for_it() {
    let server = server().await;
    let store = connect(&server).await;
    let (mine, first, second) = (request("order:42"), joining("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    assert_eq!(held(&store, &first).await.place, Some(0));
    assert_eq!(held(&store, &second).await.place, Some(1));
    let mut turn = store.subscribe(Topic::Turn(&first.key, &first.lock_id)).await.unwrap();
    let mut not_yet = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    let mut freed = store.subscribe(Topic::Freed(&first.key)).await.unwrap();
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
    assert_eq!(soon("the call", turn.next()).await, Some(Event::Freed));
    nothing_comes(&mut not_yet).await;
    nothing_comes(&mut freed).await;
    assert_eq!(line(&server, "order:42"), "t\nf");
    // Programs that know of no line see a lock that somebody has for a moment, and nobody else sees one.
    let kept = server.sql(
        "SELECT left(lock_id, 2), fence, expires_at_ms - acquired_at_ms, details FROM syncguard_locks WHERE key = 'order:42'",
    );
    assert_eq!(kept, "~q|000000000000000|1000|", "two seconds, one of which is the tolerance");
    assert!(!store.is_locked(&mine.key).await.unwrap());
    assert_eq!(store.force_release(&mine.key, None).await.unwrap(), []);
    assert_eq!(held(&store, &request("order:42")).await.holders, 0);
    granted(&store, &first).await;
    assert!(row(&server, "order:42").contains(first.lock_id.expose()));
    assert_eq!(line(&server, "order:42"), "f");
}

#[tokio::test]
async fn whoever_gives_up_its_place_lets_the_next_have_its_turn_and_leaves_nothing() {
    let server = server().await;
    let store = connect(&server).await;
    let (mine, first, second) = (request("order:42"), joining("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &first).await;
    held(&store, &second).await;
    store.release(&mine.lock_id).await.unwrap();
    let mut turn = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    assert_eq!(store.release(&first.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(soon("the call", turn.next()).await, Some(Event::Freed));
    let mut freed = store.subscribe(Topic::Freed(&first.key)).await.unwrap();
    // Many at once are the same.
    let answers = store.release_many(&[first.lock_id, second.lock_id]).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == Release::Absent(Absence::NotFound)));
    assert_eq!(soon("the last has gone", freed.next()).await, Some(Event::Freed));
    assert_eq!((row(&server, "order:42"), line(&server, "order:42")), Default::default());
}

#[tokio::test]
async fn a_call_goes_to_few_and_tells_nobody_the_lock_id() {
    let server = server().await;
    let store = connect(&server).await;
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(said) = message {
                let _ = sender.send((said.channel().to_owned(), said.payload().to_owned()));
            }
        }
    });
    let all = channel(&server);
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9').chain(['-', '_']);
    let channels = letters.map(|letter| format!("LISTEN \"{all}:{letter}\";")).collect::<String>();
    client.batch_execute(&format!("LISTEN \"{all}\";{channels}")).await.unwrap();
    let (mine, waits) = (request("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &waits).await;
    let _turn = store.subscribe(Topic::Turn(&waits.key, &waits.lock_id)).await.unwrap();
    store.release(&mine.lock_id).await.unwrap();
    let (over, said) = soon("the call", heard.recv()).await.unwrap();
    assert_eq!(over, format!("{all}:{}", &said[1..2]), "not over the channel that everybody listens to");
    assert!(said.len() == 21 && said.starts_with('T') && !said.contains(waits.lock_id.expose()), "{said}");
    assert!(!waits.lock_id.expose().contains(&said[1..]), "{said}");
}

#[tokio::test]
async fn to_hand_over_is_one_release_one_message_and_one_acquire_however_long_the_line_is() {
    let server = Server::with(&[("pg_stat_statements.track", "all")]);
    let store = crate::support::migrated(&server).await;
    let statements = async |waiters: usize| {
        let key = format!("order:{waiters}");
        let (mine, first) = (request(&key), joining(&key));
        granted(&store, &mine).await;
        held(&store, &first).await;
        for _ in 1..waiters {
            held(&store, &joining(&key)).await;
        }
        let mut turn = store.subscribe(Topic::Turn(&first.key, &first.lock_id)).await.unwrap();
        server.requests();
        store.release(&mine.lock_id).await.unwrap();
        soon("the call", turn.next()).await;
        granted(&store, &first).await;
        let seen = "SELECT sum(calls) || ' ' || sum(rows) FROM pg_stat_statements WHERE query !~ 'pg_stat'";
        let seen = server.sql(seen);
        assert_eq!(server.calls("%pg_notify(%"), 1);
        seen
    };
    assert_eq!(statements(50).await, statements(2).await);
}

#[tokio::test]
async fn channels_are_listened_to_for_as_long_as_somebody_waits_for_a_turn_there() {
    let server = server().await;
    let store = connect(&server).await;
    let mut waiting = Vec::new();
    for number in 0..200 {
        let key = key(&format!("order:{number}"));
        let id = leasehold::LockId::random().unwrap();
        waiting.push((store.subscribe(Topic::Turn(&key, &id)).await.unwrap(), key, id));
    }
    // All but the last of those who share a channel may go.
    fastrand::shuffle(&mut waiting);
    while let Some((mut turn, key, id)) = waiting.pop() {
        let (holds, waits) = (request(key.as_str()), joining(key.as_str()).with_lock_id(id));
        granted(&store, &holds).await;
        held(&store, &waits).await;
        store.release(&holds.lock_id).await.unwrap();
        assert_eq!(soon("the call", turn.next()).await, Some(Event::Freed), "{} are left", waiting.len());
    }
}

/// A release that looked at the line before somebody joined it, and is not done yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_joins_while_the_lock_is_released_hears_of_it() {
    let server = server().await;
    let (holder, waiter) = (connect(&server).await, Arc::new(connect(&server).await));
    for round in 0..60 {
        let (mine, waits) = (request("order:42"), joining("order:42"));
        granted(&holder, &mine).await;
        let mut turn = waiter.subscribe(Topic::Turn(&waits.key, &waits.lock_id)).await.unwrap();
        let (joins, joining) = (waiter.clone(), waits.clone());
        let joined = tokio::spawn(async move { joins.acquire(&joining).await.unwrap() });
        if round % 3 != 0 {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3000))).await;
        }
        assert_eq!(holder.release(&mine.lock_id).await.unwrap(), Release::Released);
        if let Acquire::Held(_) = soon("an answer", joined).await.unwrap() {
            // It may also hear of the round before.
            let told = soon("it hears of the release", turn.next()).await;
            assert!(matches!(told, Some(Event::Freed | Event::Missed)), "round {round}: {told:?}");
            granted(&*waiter, &waits).await;
        }
        waiter.release(&waits.lock_id).await.unwrap();
    }
    assert_eq!((row(&server, "order:42"), line(&server, "order:42")), Default::default());
}

/// The worst moment, made by hand: the release is done but for its commit.
#[tokio::test]
async fn whoever_joins_before_a_release_is_committed_hears_of_it() {
    let server = server().await;
    let store = connect(&server).await;
    let (mine, waits) = (request("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    let mut turn = store.subscribe(Topic::Turn(&waits.key, &waits.lock_id)).await.unwrap();
    let releasing = session(&server).await;
    let release = format!("BEGIN; SELECT syncguard_locks_release_v2('{}')", mine.lock_id.expose());
    releasing.batch_execute(&release).await.unwrap();
    assert_eq!(held(&store, &waits).await.place, Some(0), "the lock is held until the commit");
    releasing.batch_execute("COMMIT").await.unwrap();
    assert_eq!(soon("it hears of the release", turn.next()).await, Some(Event::Freed));
    granted(&store, &waits).await;
}

/// The worst moment, made by hand: who gives up its place has been granted the lock, but for the
/// commit.
#[tokio::test]
async fn whoever_gives_up_a_place_that_becomes_a_lock_meanwhile_gives_up_the_lock() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let (mine, waits) = (request("order:42"), joining("order:42").with_mode(mode));
        granted(&*store, &mine).await;
        held(&*store, &waits).await;
        store.release(&mine.lock_id).await.unwrap();
        // Somebody stands between the acquire and its commit: a trigger that waits for us.
        let gate = session(&server).await;
        gate.batch_execute("SELECT pg_advisory_lock(7, 7)").await.unwrap();
        server.sql(
            "CREATE OR REPLACE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7, 7); RETURN NULL; END $$;
             CREATE TRIGGER gate AFTER UPDATE ON syncguard_fence_counters EXECUTE FUNCTION wait_at_the_gate()",
        );
        let acquiring = tokio::spawn({
            let (store, waits) = (store.clone(), waits.clone());
            async move { store.acquire(&waits).await.unwrap() }
        });
        eventually("it is at the gate", async || stuck(&server) == 1).await;
        let releasing = tokio::spawn({
            let (store, id) = (store.clone(), waits.lock_id);
            async move { store.release(&id).await.unwrap() }
        });
        eventually("it waits for the acquire", async || stuck(&server) == 2).await;
        gate.batch_execute("SELECT pg_advisory_unlock(7, 7)").await.unwrap();
        assert!(matches!(soon("the grant", acquiring).await.unwrap(), Acquire::Granted(_)));
        assert_eq!(soon("the release", releasing).await.unwrap(), Release::Released, "{mode}");
        server.sql("DROP TRIGGER gate ON syncguard_fence_counters");
        assert!(!store.is_locked(&waits.key).await.unwrap());
        assert_eq!((row(&server, "order:42"), line(&server, "order:42")), Default::default());
    }
}

/// A function of the server that is slow in the middle, where it is quick otherwise.
#[tokio::test]
async fn readers_that_go_while_a_request_looks_at_them_leave_it_with_an_answer() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    let (reader, writer, asks) = (shared("order:42"), joining("order:42"), shared("order:42").with_line(Line::Heed));
    granted(&*store, &reader).await;
    held(&*store, &writer).await;
    let definition = server.sql(
        "SELECT replace(pg_get_functiondef(oid), '  SELECT c.number,', '  PERFORM pg_sleep(1); SELECT c.number,')
         FROM pg_proc WHERE proname = 'syncguard_locks_look_v2'",
    );
    assert!(definition.contains("pg_sleep"), "{definition}");
    server.sql(&definition);
    let asking = tokio::spawn({
        let (store, asks) = (store.clone(), asks.clone());
        async move { store.acquire(&asks).await }
    });
    eventually("it looks", async || ours(&server, "wait_event = 'PgSleep'") == 1).await;
    store.release(&reader.lock_id).await.unwrap();
    let Acquire::Held(contention) = soon("an answer", asking).await.unwrap().unwrap() else { panic!("out of turn") };
    assert_eq!((contention.holders, contention.mode), (0, Mode::Exclusive), "the writer is the next");
}

#[tokio::test]
async fn a_lock_is_released_whoever_holds_the_advisory_lock_of_its_key_and_all_in_line_hear_of_it() {
    let server = server().await;
    // Less than the time for which anything else is waited for.
    let store = Postgres::connect(&format!("{}?timeout=3s", server.url())).await.unwrap();
    let (mine, first, second) = (request("order:42"), joining("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &first).await;
    held(&store, &second).await;
    let mut turns = Vec::new();
    for waits in [&first, &second] {
        turns.push(store.subscribe(Topic::Turn(&waits.key, &waits.lock_id)).await.unwrap());
    }
    let application = session(&server).await;
    application.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('order:42'))").await.unwrap();
    assert_eq!(soon("the release", store.release(&mine.lock_id)).await.unwrap(), Release::Released);
    for turn in &mut turns {
        assert_eq!(soon("it hears of the release", turn.next()).await, Some(Event::Freed));
    }
    assert_eq!(row(&server, "order:42"), "");
    application.batch_execute("COMMIT").await.unwrap();
    assert_eq!(held(&store, &second).await.holders, 0, "the order is kept");
    granted(&store, &first).await;
}

#[tokio::test]
async fn the_key_is_not_kept_for_one_in_line_if_its_dead_lock_comes_to_life() {
    let server = server().await;
    let store = Arc::new(connect(&server).await);
    let (mine, first) = (request("order:42"), joining("order:42"));
    let second = joining("order:42").with_mode(Mode::Shared);
    granted(&*store, &mine).await;
    held(&*store, &first).await;
    server.sql("UPDATE syncguard_locks SET expires_at_ms = 1");
    // An extend whose commit takes long: it was in time, as the one who sent it knows.
    let extending = session(&server).await;
    let extend =
        "BEGIN; UPDATE syncguard_locks SET expires_at_ms = floor(extract(epoch FROM clock_timestamp()) * 1000) + 60000";
    extending.batch_execute(extend).await.unwrap();
    // Who comes second finds a dead lock, and would call the first.
    let asking = tokio::spawn({
        let (store, second) = (store.clone(), second.clone());
        async move { store.acquire(&second).await.unwrap() }
    });
    eventually("it waits for the row", async || stuck(&server) == 1).await;
    extending.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(soon("an answer", asking).await.unwrap(), Acquire::Held(_)));
    assert!(row(&server, "order:42").contains(mine.lock_id.expose()), "{}", row(&server, "order:42"));
    assert_eq!(line(&server, "order:42"), "f\nf");
    assert_eq!(held(&*store, &first).await.holders, 1);
}

#[tokio::test]
async fn lines_work_by_asking_again_where_nobody_can_listen() {
    let server = server().await;
    let url = format!("{}?wake_ups=off", server.url());
    let (store, other) = (Postgres::connect(&url).await.unwrap(), Postgres::connect(&url).await.unwrap());
    assert!(!store.capabilities().wake_ups && store.capabilities().lines);
    let (mine, first, second) = (request("order:42"), joining("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&other, &first).await;
    held(&other, &second).await;
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(held(&other, &second).await.place, Some(1));
    granted(&other, &first).await;
    store.release(&first.lock_id).await.unwrap();
    granted(&other, &second).await;
}

#[tokio::test]
async fn dead_places_and_grants_are_swept_and_none_that_anybody_may_need() {
    let server = server().await;
    let store = connect(&server).await;
    let (reader, waits) = (shared("order:42"), joining("order:42"));
    granted(&store, &reader).await;
    held(&store, &waits).await;
    assert_eq!(store.sweep().await.unwrap(), 0);
    let dead = |what: &str, ago: u64| {
        server.sql(&format!("UPDATE {what} = floor(extract(epoch FROM clock_timestamp()) * 1000) - {ago}"));
    };
    dead("syncguard_locks_line SET until_ms", 1);
    assert_eq!(store.sweep().await.unwrap(), 1, "a place has no tolerance");
    for table in ["syncguard_locks SET expires_at_ms", "syncguard_locks_grants SET expires_at_ms"] {
        dead(table, 1_500);
    }
    assert_eq!(store.sweep().await.unwrap(), 0, "it takes more than a second of death");
    for table in ["syncguard_locks SET expires_at_ms", "syncguard_locks_grants SET expires_at_ms"] {
        dead(table, 3_001);
    }
    assert_eq!(store.sweep().await.unwrap(), 2);
    assert_eq!(number(&server, "SELECT count(*) FROM syncguard_locks_grants"), 0);
}

#[tokio::test]
async fn dead_places_do_not_make_every_release_look_for_them_again() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    granted(&store, &mine).await;
    for _ in 0..5 {
        held(&store, &joining("order:42")).await;
    }
    server.sql("UPDATE syncguard_locks_line SET until_ms = 1");
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!((row(&server, "order:42"), line(&server, "order:42")), Default::default());
}

#[tokio::test]
async fn listings_tell_how_many_wait_and_page_through_the_holders_of_one_key() {
    let server = server().await;
    let store = connect(&server).await;
    for _ in 0..5 {
        granted(&store, &shared("b")).await;
    }
    granted(&store, &request("a")).await;
    for _ in 0..3 {
        held(&store, &joining("b")).await;
    }
    // A key that nobody holds is in no listing.
    let (gone, waits) = (request("c"), joining("c"));
    granted(&store, &gone).await;
    held(&store, &waits).await;
    store.release(&gone.lock_id).await.unwrap();
    let (mut fences, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut request = leasehold::ListRequest::new("").with_page_size(2);
        if let Some(cursor) = cursor {
            request = request.with_cursor(cursor);
        }
        let page = store.list(&request).await.unwrap();
        for record in &page.records {
            let waiting = (record.key == key("b")).then_some(&3);
            assert_eq!(page.waiting.get(&record.key), waiting);
            fences.push((record.key.clone(), record.fence));
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    fences.dedup();
    assert_eq!(fences.len(), 6, "{fences:?}");
    let inspected = store.inspect(&key("c")).await.unwrap();
    assert_eq!((inspected.holders.len(), inspected.waiters.len()), (0, 1));
    assert_eq!(inspected.waiters[0].lock_id, waits.lock_id);
}

#[tokio::test]
async fn several_locks_are_taken_in_one_statement_and_no_two_wait_for_each_other() {
    let server = server().await;
    let store = connect(&server).await;
    server.requests();
    let all: Vec<_> = (0..32).map(|n| request(&format!("k{n}"))).collect();
    let leasehold::backend::AcquireAll::Granted(grants) = store.acquire_all(&all).await.unwrap() else {
        panic!("they are free")
    };
    assert_eq!((grants.len(), server.requests()), (32, 1));
    assert!(grants.iter().all(|grant| grant.fence == grants[0].fence));
    store.release_many(&all.iter().map(|request| request.lock_id).collect::<Vec<_>>()).await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = connect(&server).await;
        tasks.push(tokio::spawn(async move {
            let mut taken = 0;
            while taken < 15 {
                let mut all: Vec<_> = (0..6).map(|n| request(&format!("k{n}")).with_line(Line::Heed)).collect();
                all[2] = all[2].clone().with_mode(Mode::Shared);
                all[3] = all[3].clone().with_mode(permit(2));
                fastrand::shuffle(&mut all);
                if let leasehold::backend::AcquireAll::Granted(_) = store.acquire_all(&all).await.unwrap() {
                    taken += 1;
                    let ids: Vec<_> = all.iter().map(|request| request.lock_id).collect();
                    for answer in store.release_many(&ids).await {
                        assert_eq!(answer.unwrap(), Release::Released);
                    }
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
            }
        }));
    }
    for task in tasks {
        soon("a taker", task).await.unwrap();
    }
    assert_eq!(number(&server, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), 0);
    assert_eq!(server.sql("SELECT key FROM syncguard_locks UNION ALL SELECT key FROM syncguard_locks_grants"), "");
}
