//! Commits that fail although they were carried out, and others that were not.

use test_servers::Firestore;
use test_support::{Case, cases_of_one_store, connect};

use super::{both, trouble};
use crate::contest::Contest;
use crate::turns::Turns;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    commits_of_unknown_outcome_and_conflicts_break_no_promise,
    whoever_waits_gets_a_turn_while_commits_fail,
];

async fn commits_of_unknown_outcome_and_conflicts_break_no_promise() {
    for server in both() {
        let url = server.url();
        let make_trouble = |contest: &Contest, server: &Firestore| {
            trouble(server);
            contest.await_grants(150);
            assert!(server.fault_hits() > 50, "{} commits failed", server.fault_hits());
            server.clear_faults();
            contest.await_grants(20);
        };
        Contest::new().during(server, &url, make_trouble).await;
    }
}

async fn whoever_waits_gets_a_turn_while_commits_fail() {
    for server in both() {
        let stores = vec![connect(&server.url()).await, connect(&server.url()).await];
        trouble(&server);
        let summary = Turns::begin(stores, "turns", 3, 15).end().await;
        assert!(server.fault_hits() > 20, "{} commits failed: {summary:?}", server.fault_hits());
    }
}
