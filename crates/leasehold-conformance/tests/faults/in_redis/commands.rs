//! Commands of an operator that get in the way: `SCRIPT FLUSH`, `CLIENT PAUSE`.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_conformance::RealHarness;
use leasehold_conformance::history::{HistoryOptions, concurrent};
use test_servers::Redis;
use test_support::{Case, cases_of_one_store, connect};

pub(crate) const CASES: &[Case] = cases_of_one_store![
    a_server_that_keeps_forgetting_the_scripts_fails_nobody,
    a_server_that_is_paused_again_and_again_fails_nobody,
];

const TROUBLE: Duration = Duration::from_secs(3);

/// Runs a history in which no call may fail, and `trouble` beside it, over and over.
async fn unharmed_by(trouble: impl Fn(&Redis) + Send + 'static) {
    let server = Arc::new(Redis::start());
    let (store, peer) = (connect(&server.url()).await, connect(&server.url()).await);
    let options = HistoryOptions { duration: TROUBLE, ..HistoryOptions::real_clock() };
    let history = concurrent(Arc::new(RealHarness::new(store, peer)), &options);
    let troubled = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        while started.elapsed() < TROUBLE {
            trouble(&server);
        }
        server
    });
    let (summary, server) = (history.await, troubled.await.unwrap());
    summary.unwrap();
    drop(server);
}

async fn a_server_that_keeps_forgetting_the_scripts_fails_nobody() {
    unharmed_by(|server| {
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        sleep(Duration::from_millis(1));
    })
    .await;
}

async fn a_server_that_is_paused_again_and_again_fails_nobody() {
    unharmed_by(|server| {
        // While it is paused nobody is answered, this connection included.
        assert_eq!(server.cli(&["CLIENT", "PAUSE", "40", "ALL"]), "OK");
        assert_eq!(server.cli(&["PING"]), "PONG");
        sleep(Duration::from_millis(20));
    })
    .await;
}
