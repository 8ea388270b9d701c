//! The other process lives as long as somebody uses it, and its end is noticed.

use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::backend::{Backend, Extend, LookupBy, Topic};
use leasehold::{Error, ErrorCode, Operation, Ttl};
use leasehold_conformance::remote::Peer;
use test_support::{eventually, granted, key, soon};
use tokio::task::JoinHandle;

use super::support::{next, peer, request, serving};

/// Sends an extend that is never answered, and waits until the other process is at it.
async fn hang(peer: &Peer) -> JoinHandle<Result<Extend, Error>> {
    let grant = granted(peer, &request("a")).await;
    let hung = tokio::spawn({
        let peer = peer.clone();
        async move { peer.extend(&grant.lock_id, Ttl::default()).await }
    });
    eventually("the extend is carried out", async || {
        peer.lookup(LookupBy::Id(&grant.lock_id)).await.unwrap().unwrap().expires_at != grant.expires_at
    })
    .await;
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
        let (number, grant) = soon("an answer", call).await.unwrap();
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
    let under_way = soon("an answer", hung).await.unwrap().unwrap_err();
    let later = soon("an answer", peer.acquire(&request("b"))).await.unwrap_err();
    let subscribe = soon("an answer", peer.subscribe(Topic::Taken)).await.unwrap_err();
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
    let other = peer.clone();
    let freed = other.subscribe(Topic::Freed(&key("a"))).await.unwrap();
    drop(peer);
    assert!(!other.is_locked(&key("a")).await.unwrap());
    assert!(Path::new(&process).exists());
    drop(other);
    assert!(!Path::new(&process).exists());
    drop(freed);
}

pub(super) async fn the_process_ends_with_its_input() {
    let mut child = serving("memory").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    let mut status = None;
    eventually("it ends", async || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert!(status.unwrap().success());
}

pub(super) async fn a_process_that_does_not_serve_is_an_error() {
    assert!(Peer::spawn(Command::new("/nowhere/nothing")).await.is_err());
    assert!(Peer::spawn(Command::new("true")).await.is_err());
    let mut talkative = Command::new("sh");
    talkative.args(["-c", "echo hello; exec sleep 60"]);
    let error = soon("an answer", Peer::spawn(talkative)).await.unwrap_err();
    assert!(error.to_string().contains("no answer"), "{error}");
}
