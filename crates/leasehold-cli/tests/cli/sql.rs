//! Locks that a program took by calling the functions for SQL clients.

use serde_json::Value;
use test_servers::Postgres;
use test_support::{Case, blocking_cases};

use crate::Store;
use crate::support::Place;

pub(crate) const CASES: &[Case] = blocking_cases![
    a_lock_of_a_sql_client_is_shown_like_any_other,
    the_doctor_finds_a_function_that_was_changed_and_migrate_mends_it,
];

fn a_lock_of_a_sql_client_is_shown_like_any_other(store: Store) {
    let server = Postgres::start();
    let (place, store) = (Place::new(store), server.url());
    assert_eq!(place.run(["migrate", "--store", &store]).code, 0);
    let take = "SELECT lock_id FROM leasehold_acquire('order:42', 60, 'db-1/report', '{\"run\": 7}')";
    let id = server.sql(take);
    for command in [["show", "--store", &store, "order:42"], ["ls", "--store", &store, "--json"]] {
        let done = place.run(command);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stdout.contains("db-1/report") && !done.stdout.contains(&id), "{done:?}");
    }
    let shown: Value =
        serde_json::from_str(&place.run(["show", "--store", &store, "--json", "order:42"]).stdout).unwrap();
    assert_eq!(shown["metadata"]["run"], 7, "{shown}");
    assert_eq!(place.run(["run", "-n", "--store", &store, "order:42", "--", "true"]).code, 75);
    assert_eq!(place.run(["release", "--store", &store, &id]).code, 0);
    assert_eq!(place.run(["run", "-n", "--store", &store, "order:42", "--", "true"]).code, 0);
}

fn the_doctor_finds_a_function_that_was_changed_and_migrate_mends_it(store: Store) {
    let server = Postgres::start();
    let (place, store) = (Place::new(store), server.url());
    assert_eq!(place.run(["migrate", "--store", &store]).code, 0);
    assert_eq!(place.run(["doctor", "--store", &store]).code, 0);
    let definition = server.sql("SELECT pg_get_functiondef('syncguard_locks_acquire_v2'::regproc)");
    server.sql(&definition.replace("now_us / 1000 - 1000", "now_us / 1000 - 0"));
    let done = place.run(["doctor", "--store", &store]);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert_ne!(done.code, 0, "{said}");
    assert!(said.contains("syncguard_locks_acquire_v2") && said.contains("leasehold migrate"), "{said}");
    let refused = place.run(["run", "--store", &store, "k", "--", "true"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert_eq!(place.run(["migrate", "--store", &store]).code, 0);
    assert_eq!(place.run(["doctor", "--store", &store]).code, 0);
    assert_eq!(place.run(["run", "--store", &store, "k", "--", "true"]).code, 0);
}
