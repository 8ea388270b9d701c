//! Critical sections.

use std::time::Duration;

use leasehold::{CancellationToken, ErrorCode, Fault, LockState, Operation};

use crate::support::{World, eventually};

#[tokio::test]
async fn run_returns_what_the_work_returns_and_releases_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let work = |lease: leasehold::Lease| async move { (lease.state(), lease.fence()) };
    let (state, fence) = locks.lock("k").run(work).await.unwrap();
    assert_eq!(state, LockState::Held);
    assert!(!world.is_locked("k").await);
    let (_, later) = locks.lock("k").run(work).await.unwrap();
    assert!(later > fence);
}

#[tokio::test]
async fn run_excludes_others_while_it_works() {
    let world = World::new();
    let rival = world.rival();
    let seen = world.locks().lock("k").run(|_| async move { rival.lock("k").try_acquire().await }).await.unwrap();
    assert!(seen.unwrap().is_none());
}

#[tokio::test]
async fn a_lease_outside_run_is_lost_when_run_is_over() {
    let world = World::new();
    let lease = world.locks().lock("k").run(|lease| async move { lease }).await.unwrap();
    assert_eq!(lease.state(), LockState::Lost);
    assert_eq!(lease.extend(Duration::from_secs(1)).await.unwrap_err().code(), ErrorCode::LockLost);
}

#[tokio::test]
async fn cancelling_the_token_stops_the_work_and_releases_the_lock() {
    let world = World::new();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (locks, token) = (world.locks(), token.clone());
        async move { locks.lock("k").cancel_on(&token).run(|_| std::future::pending::<()>()).await }
    });
    eventually("it runs", async || world.is_locked("k").await).await;
    token.cancel();
    assert_eq!(running.await.unwrap().unwrap_err().code(), ErrorCode::Aborted);
    assert!(!world.is_locked("k").await);
}

#[tokio::test]
async fn a_release_that_fails_does_not_take_the_result_away() {
    let world = World::new();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let locks = world.builder().on_release_error(move |failure| told.send(failure.error.code()).unwrap()).build();
    world.faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    assert_eq!(locks.lock("k").run(|_| async { 7 }).await.unwrap(), 7);
    assert_eq!(heard.recv().await.unwrap(), ErrorCode::AuthFailed);
}

#[tokio::test]
async fn a_panic_in_the_work_releases_the_lock() {
    let world = World::new();
    let locks = world.locks();
    let running = tokio::spawn(async move { locks.lock("k").run(|_| async { panic!("the work failed") }).await });
    assert!(running.await.unwrap_err().is_panic());
    world.freed("k").await;
}
