//! Servers that are restarted, or end a connection, in ways of their own.

use test_support::{Case, cases_of_one_store};

use super::server;
use crate::contest::Contest;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_server_that_is_restarted_without_order_breaks_no_promise,
    a_connection_that_is_ended_in_the_middle_of_a_statement_breaks_no_promise,
];

async fn a_server_that_is_restarted_without_order_breaks_no_promise() {
    let server = server(&[]);
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            for _ in 0..3 {
                contest.await_grants(20);
                server.restart_immediate();
            }
            contest.await_grants(20);
        })
        .await;
}

async fn a_connection_that_is_ended_in_the_middle_of_a_statement_breaks_no_promise() {
    let server = server(&[]);
    let url = server.url();
    Contest::new()
        .during(server, &url, |contest, server| {
            contest.await_grants(20);
            // A statement may be answered just before its connection is ended.
            while !contest.has_met_trouble() {
                server.terminate_backends("application_name = 'leasehold' AND state = 'active'");
            }
            contest.await_grants(20);
        })
        .await;
}
