//! An examination finds what endangers locks, and nothing else.

use leasehold::backend::{Backend, Release};
use leasehold::{Check, Locks};
use test_support::{Case, Setup, cases, check, complaints, connect, granted, request};

use crate::Store;

pub(crate) const CASES: &[Case] = cases![
    a_good_server_gives_no_cause_for_complaint_and_is_left_as_it_was,
    an_examination_leaves_a_lock_that_looks_like_its_own_alone,
];

async fn a_good_server_gives_no_cause_for_complaint_and_is_left_as_it_was(store: Store) {
    let server = store.server_with(&Setup { durable: true, ..Setup::default() });
    let before = server.snapshot();
    let checks = Locks::examine(&server.url()).await.unwrap();
    assert_eq!(complaints(&checks), [], "{checks:#?}");
    for name in ["permissions"].iter().chain(server.checks()) {
        check(&checks, name);
    }
    let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks.len(), "one line for each thing: {checks:#?}");
    let about_clocks = |check: &Check| check.name.starts_with("clock") || check.detail.contains(" ms from ");
    let of_clocks: Vec<_> = checks.iter().filter(|check| about_clocks(check)).collect();
    assert_eq!(of_clocks.len(), 1, "the clocks are compared once: {of_clocks:?}");
    assert_eq!(server.snapshot(), before, "something is left");
}

async fn an_examination_leaves_a_lock_that_looks_like_its_own_alone(store: Store) {
    let server = store.server();
    let store = connect(&server.url()).await;
    let mine = request("doctor");
    granted(&*store, &mine).await;
    Locks::examine(&server.url()).await.unwrap();
    assert!(store.is_locked(&mine.key).await.unwrap(), "the examination ended a lock that is held");
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Released);
}
