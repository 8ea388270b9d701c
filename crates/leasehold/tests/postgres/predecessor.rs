//! Programs of the version before, which knew neither lines nor shared locks, beside ours: their
//! functions, to the letter, on the same tables.

use std::sync::Arc;

use leasehold::backend::{Absence, Backend, Event, Extend, LookupBy, Mode, Topic};
use test_servers::Postgres as Server;
use test_support::postgres::{row, session};
use test_support::{granted, held, id, key, request, soon, ttl};
use tokio_postgres::Client;

use crate::contest::{self, Contest};
use crate::support::{connect, joining, permit, server, shared};

/// What `leasehold migrate` of that version makes in a schema `public`, apart from the public
/// functions and what they need.
const FUNCTIONS: &str = include_str!("version_1.sql");

/// A program of that version.
struct Old(Client);

impl Old {
    async fn new(server: &Server) -> Self {
        Self(session(server).await)
    }

    /// Takes the lock, from whoever has had it for longer than so many milliseconds if that is
    /// said.
    async fn acquire(&self, key: &str, id: &leasehold::LockId, stuck_ms: Option<i64>) -> bool {
        let acquire = "SELECT granted FROM syncguard_locks_acquire_v1(
            $1, $2, 30000, $1, 'fence:' || $1, jsonb_build_object('lockId', $2::text, 'holder', 'old'), NULL, $3, NULL)";
        self.0.query_one(acquire, &[&key, &id.expose(), &stuck_ms]).await.unwrap().get(0)
    }

    async fn extend(&self, id: &leasehold::LockId) -> bool {
        let extend = "SELECT until_ms FROM syncguard_locks_extend_v1($1, 30000, false)";
        self.0.query_one(extend, &[&id.expose()]).await.unwrap().get::<_, i64>(0) > 0
    }

    async fn release(&self, id: &leasehold::LockId) -> bool {
        let release = "SELECT syncguard_locks_release_v1($1)";
        self.0.query_one(release, &[&id.expose()]).await.unwrap().get::<_, i32>(0) == 1
    }
}

/// A server on which both versions were migrated.
async fn both() -> (Server, Old) {
    let server = server().await;
    server.sql(FUNCTIONS);
    let old = Old::new(&server).await;
    (server, old)
}

#[tokio::test]
async fn they_see_what_is_shared_kept_or_held_in_permits_as_a_lock_of_somebody_else() {
    let (server, old) = both().await;
    let store = connect(&server).await;
    for mine in [shared("order:42"), request("order:42").with_mode(permit(3))] {
        granted(&store, &mine).await;
        assert!(!old.acquire("order:42", &id(), None).await);
        store.release(&mine.lock_id).await.unwrap();
        let theirs = id();
        assert!(old.acquire("order:42", &theirs, None).await);
        assert_eq!(held(&store, &mine).await.holder.unwrap().as_str(), "old");
        assert!(old.extend(&theirs).await && old.release(&theirs).await);
    }
    let (mine, waits) = (request("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &waits).await;
    store.release(&mine.lock_id).await.unwrap();
    assert!(!old.acquire("order:42", &id(), None).await, "it is kept for the first in line");
    granted(&store, &waits).await;
}

#[tokio::test]
async fn what_they_release_wakes_those_in_line() {
    let (server, old) = both().await;
    let store = connect(&server).await;
    let (theirs, waits) = (id(), joining("order:42"));
    assert!(old.acquire("order:42", &theirs, None).await);
    held(&store, &waits).await;
    let mut turn = store.subscribe(Topic::Turn(&waits.key, &waits.lock_id)).await.unwrap();
    assert!(old.release(&theirs).await);
    assert_eq!(soon("it hears of the release", turn.next()).await, Some(Event::Freed));
    granted(&store, &waits).await;
}

#[tokio::test]
async fn what_they_steal_or_end_by_force_is_no_readers_any_more() {
    let (server, old) = both().await;
    let store = connect(&server).await;
    for by_force in [true, false] {
        let readers = [shared("order:42"), shared("order:42")];
        for reader in &readers {
            granted(&store, reader).await;
        }
        let theirs = id();
        if by_force {
            old.0.query("SELECT * FROM syncguard_locks_force_release_v1('order:42')", &[]).await.unwrap();
        } else {
            assert!(!old.acquire("order:42", &theirs, Some(60_000)).await);
            assert!(old.acquire("order:42", &theirs, Some(-1)).await);
        }
        for reader in &readers {
            assert_eq!(store.extend(&reader.lock_id, ttl(60_000)).await.unwrap(), Extend::Absent(Absence::NotFound));
            assert_eq!(store.lookup(LookupBy::Id(&reader.lock_id)).await.unwrap(), None);
        }
        if !by_force {
            assert!(row(&server, "order:42").contains(theirs.expose()));
            assert!(old.release(&theirs).await);
        }
        let next = request("order:42");
        granted(&store, &next).await;
        store.release(&next.lock_id).await.unwrap();
        assert!(!store.is_locked(&key("order:42")).await.unwrap());
    }
}

async fn contend_as_before(server: Arc<Server>, contest: Arc<Contest>) {
    let old = Old::new(&server).await;
    while !contest.is_over(5) {
        let id = id();
        if old.acquire("order:42", &id, None).await {
            contest.holders.enter(Mode::Exclusive);
            assert!(old.extend(&id).await);
            contest.count(4);
            contest.holders.leave(Mode::Exclusive);
            assert!(old.release(&id).await);
        }
        contest::pause(3_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_and_our_readers_permits_and_lines_never_hold_a_key_together() {
    let (server, _) = both().await;
    let (server, contest) = (Arc::new(server), Arc::new(Contest::default()));
    let old = [0, 1].map(|_| tokio::spawn(contend_as_before(server.clone(), contest.clone())));
    contest::contend(&server, &contest, 5, old.into()).await;
}

#[tokio::test]
async fn a_program_of_ours_without_its_migration_says_what_to_run() {
    let server = server().await;
    server.sql(FUNCTIONS);
    // As it was before the migration.
    server.sql("DROP TABLE syncguard_locks_grants, syncguard_locks_line");
    server.sql(
        "DO $$ DECLARE one regprocedure; BEGIN
           FOR one IN SELECT oid FROM pg_proc WHERE proname ~ '^syncguard_locks_.*_v2$' LOOP
             EXECUTE format('DROP FUNCTION %s', one);
           END LOOP;
         END $$",
    );
    let store = connect(&server).await;
    let errors = [
        store.acquire(&request("order:42")).await.unwrap_err(),
        store.acquire_all(&[request("order:42")]).await.unwrap_err(),
        store.release(&id()).await.unwrap_err(),
        store.extend(&id(), ttl(1)).await.unwrap_err(),
        store.lookup(LookupBy::Key(&key("order:42"))).await.unwrap_err(),
        store.inspect(&key("order:42")).await.unwrap_err(),
        store.list(&leasehold::ListRequest::new("")).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.hint().is_some_and(|hint| hint.contains("leasehold migrate")), "{error:?}");
        assert!(!error.outcome_unknown(), "{error:?}");
    }
    // Who may use the table of locks may use the new ones from then on.
    server.sql("CREATE ROLE app; GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks TO app; GRANT SELECT ON syncguard_locks TO PUBLIC");
    store.migrate().await.unwrap();
    for table in ["syncguard_locks_grants", "syncguard_locks_line"] {
        let may = |role: &str, what: &str| {
            server.sql(&format!("SELECT has_table_privilege('{role}', '{table}', '{what}')")) == "t"
        };
        assert!(["SELECT", "INSERT", "UPDATE", "DELETE"].iter().all(|what| may("app", what)), "{table}");
        assert!(may("pg_monitor", "SELECT") && !may("pg_monitor", "INSERT") && !may("app", "TRUNCATE"), "{table}");
    }
    granted(&store, &shared("order:42")).await;
}
