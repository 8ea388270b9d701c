//! Servers whose transactions see less of each other than locks need: conflicts are met by trying
//! again, unseen by the user.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Ttl;
use leasehold::backend::{Acquire, Extend, Release};
use leasehold_conformance::history::History;
use test_support::{Case, cases_of_one_store, connect, request, soon};

use super::server;
use crate::recorder::Recorder;
use crate::support::assert_sound;
use crate::turns::Turns;

pub(crate) const CASES: &[Case] = cases_of_one_store![
    locks_exclude_each_other_on_a_server_whose_default_is_serializable,
    locks_exclude_each_other_on_a_server_whose_default_is_repeatable_read,
];

const CONTENDERS: usize = 6;
const GRANTS: usize = 10;

async fn contend(store: Arc<Recorder>) {
    let mut grants = 0;
    while grants < GRANTS {
        let wanted = request("contended");
        if let Acquire::Granted(_) = store.acquire(&wanted).await.unwrap() {
            let extended = store.extend(&wanted.lock_id, Ttl::default()).await.unwrap();
            assert!(matches!(extended, Extend::Extended { .. }), "{extended:?}");
            assert_eq!(store.release(&wanted.lock_id).await.unwrap(), Release::Released);
            grants += 1;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..8))).await;
    }
}

async fn at(level: &str) {
    let server = server(&[("default_transaction_isolation", level)]);
    let stores = [connect(&server.url()).await, connect(&server.url()).await];
    let history = History::new();
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|number| tokio::spawn(contend(Arc::new(Recorder::new(stores[number % 2].clone(), &history)))))
        .collect();
    for contender in contenders {
        soon("a contender", contender).await.unwrap();
    }
    assert_eq!(assert_sound(&history.events()).granted, CONTENDERS * GRANTS);
    Turns::begin(stores.to_vec(), "turns", 3, 5).end().await;
    drop(stores);
    let conflicts: u64 = server.sql("SELECT sum(xact_rollback) FROM pg_stat_database").parse().unwrap();
    assert!(conflicts > 0, "nobody was ever in anybody's way");
}

async fn locks_exclude_each_other_on_a_server_whose_default_is_serializable() {
    at("serializable").await;
}

async fn locks_exclude_each_other_on_a_server_whose_default_is_repeatable_read() {
    at("repeatable read").await;
}
