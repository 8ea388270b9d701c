//! The other process lives as long as somebody uses it, and its end is noticed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Backend, Error, ErrorCode, Extend, LookupBy, Operation, Topic, Ttl};
use leasehold_conformance::remote::Peer;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::support::{PATIENCE, granted, key, next, peer, request, serving};

/// Sends an extend that is never answered, and waits until the other process is at it.
async fn hang(peer: &Peer) -> JoinHandle<Result<Extend, Error>> {
    let grant = granted(peer, &request("a")).await;
    let hung = tokio::spawn({
        let peer = peer.clone();
        async move { peer.extend(&grant.lock_id, Ttl::default()).await }
    });
    let give_up = Instant::now() + PATIENCE;
    while peer.lookup(LookupBy::Id(&grant.lock_id)).await.unwrap().unwrap().expires_at == grant.expires_at {
        assert!(Instant::now() < give_up, "the extend was not carried out");
        tokio::task::yield_now().await;
    }
    hung
}

pub(super) async fn a_call_that_hangs_holds_up_no_other() {
    let peer = peer("faulty").await;
    let hung = hang(&peer).await;
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let peer = peer.clone();
            tokio::spawn(async move { (number, granted(&peer, &request(&format!("many-{number}"))).await) })
        })
        .collect();
    for call in calls {
        let (number, grant) = timeout(PATIENCE, call).await.expect("it is answered").unwrap();
        let record = peer.lookup(LookupBy::Id(&grant.lock_id)).await.unwrap().unwrap();
        assert_eq!(record.key, key(&format!("many-{number}")), "the answer to another call");
    }
    assert!(!hung.is_finished());
}

pub(super) async fn a_killed_process_fails_all_calls() {
    let peer = peer("faulty").await;
    let mut freed = peer.subscribe(Topic::Freed(&key("a"))).await.unwrap();
    let hung = hang(&peer).await;
    // From outside, so that nothing here knows of it beforehand.
    assert!(Command::new("kill").args(["-9", &peer.process_id().to_string()]).status().unwrap().success());
    let under_way = timeout(PATIENCE, hung).await.expect("it does not hang").unwrap().unwrap_err();
    let later = timeout(PATIENCE, peer.acquire(&request("b"))).await.expect("it does not hang").unwrap_err();
    let subscribe = timeout(PATIENCE, peer.subscribe(Topic::Taken)).await.expect("it does not hang").unwrap_err();
    for (error, operation) in
        [(under_way, Operation::Extend), (later, Operation::Acquire), (subscribe, Operation::Subscribe)]
    {
        assert_eq!((error.code(), error.operation()), (ErrorCode::ServiceUnavailable, Some(operation)));
        assert!(error.outcome_unknown() && error.is_retryable());
    }
    assert_eq!(next(&mut freed).await, None);
    assert!(peer.capabilities().wake_ups);
}

pub(super) async fn the_process_ends_with_its_last_handle() {
    let peer = peer("memory").await;
    let process = format!("/proc/{}", peer.process_id());
    let fork = peer.fork().await.unwrap();
    let freed = fork.subscribe(Topic::Freed(&key("a"))).await.unwrap();
    drop(peer);
    assert!(!fork.is_locked(&key("a")).await.unwrap());
    assert!(Path::new(&process).exists());
    drop(fork);
    assert!(!Path::new(&process).exists());
    drop(freed);
}

pub(super) async fn the_process_ends_with_its_input() {
    let mut child = serving("memory").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    let give_up = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < give_up, "it serves on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(status.success());
}

pub(super) async fn a_process_that_does_not_serve_is_an_error() {
    assert!(Peer::spawn(Command::new("/nowhere/nothing")).await.is_err());
    assert!(Peer::spawn(Command::new("true")).await.is_err());
    let mut talkative = Command::new("sh");
    talkative.args(["-c", "echo hello; exec sleep 60"]);
    let error = timeout(PATIENCE, Peer::spawn(talkative)).await.expect("it does not hang").unwrap_err();
    assert!(error.to_string().contains("no answer"), "{error}");
}
