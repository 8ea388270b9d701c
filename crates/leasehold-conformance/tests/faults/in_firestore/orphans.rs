//! Grants that nobody was told of.

use std::time::Duration;

use leasehold::Locks;
use test_servers::Firestore;
use test_support::{Case, cases_of_one_store, connect, eventually};

use super::{both, trouble};

pub(crate) const CASES: &[Case] = cases_of_one_store![acquires_that_failed_leave_no_lock];

/// So long that no lock goes away by itself.
const TTL: Duration = Duration::from_secs(3600);

fn locks_in(server: &Firestore) -> usize {
    server.documents().keys().filter(|path| path.starts_with("locks/")).count()
}

async fn acquires_that_failed_leave_no_lock() {
    for server in both() {
        let locks = Locks::builder(connect(&server.url()).await).on_release_error(|_| {}).build();
        trouble(&server);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let locks = locks.clone();
            tasks.spawn(async move {
                // One try, whose guard is dropped at once if there is one.
                locks.lock(format!("order:{number}")).ttl(TTL).try_acquire().await.is_err()
            });
        }
        let failed = tasks.join_all().await.into_iter().filter(|failed| *failed).count();
        assert!(failed > 5, "{failed} acquires failed");
        eventually("no lock is left", async || locks_in(&server) == 0).await;
    }
}
