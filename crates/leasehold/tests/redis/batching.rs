//! Acquires and releases that come together are sent together, each as if it were alone.

use std::sync::Arc;

use leasehold::backend::{Acquire, AcquireRequest, Backend, Line, Release};
use leasehold::redis::{Redis, RedisOptions};
use leasehold::{Error, ErrorCode, LockId};
use test_servers::Redis as Server;
use test_support::redis::{RULES, commands, counter_of, record_of, user};
use test_support::{grant, granted, held, id, request};
use tokio::task::JoinHandle;

use crate::support::{connect, joining, permit};

/// As many requests at the same time.
const MANY: usize = 64;

fn requests(name: &str) -> Vec<AcquireRequest> {
    (0..MANY).map(|number| request(&format!("{name}:{number}"))).collect()
}

/// Asks for all of them at the same time.
async fn acquire_at_once(store: &Arc<Redis>, requests: &[AcquireRequest]) -> Vec<Result<Acquire, Error>> {
    let acquire = |request: AcquireRequest| {
        let store = store.clone();
        tokio::spawn(async move { store.acquire(&request).await })
    };
    answers(requests.iter().cloned().map(acquire).collect()).await
}

async fn release_at_once(store: &Arc<Redis>, ids: &[LockId]) -> Vec<Result<Release, Error>> {
    let release = |id: LockId| {
        let store = store.clone();
        tokio::spawn(async move { store.release(&id).await })
    };
    answers(ids.iter().copied().map(release).collect()).await
}

async fn answers<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn ids(requests: &[AcquireRequest]) -> Vec<LockId> {
    requests.iter().map(|request| request.lock_id).collect()
}

/// Has the server learn the scripts, and forget what it counted.
async fn prepare(server: &Server, store: &Arc<Redis>) {
    let requests = requests("first");
    assert!(acquire_at_once(store, &requests).await.into_iter().all(|answer| answer.is_ok()));
    assert!(release_at_once(store, &ids(&requests)).await.into_iter().all(|answer| answer.is_ok()));
    commands(server);
}

fn asked(server: &Server) -> u64 {
    commands(server).get("evalsha").copied().unwrap_or(0)
}

#[tokio::test]
async fn what_comes_together_takes_few_requests() {
    let server = Server::start();
    let store = Arc::new(connect(&server).await);
    prepare(&server, &store).await;
    let requests = requests("order");
    let grants: Vec<_> = acquire_at_once(&store, &requests).await.into_iter().map(grant).collect();
    let acquires = asked(&server);
    for (request, grant) in requests.iter().zip(&grants) {
        assert_eq!(grant.lock_id, request.lock_id);
        let found = store.lookup(leasehold::backend::LookupBy::Id(&request.lock_id)).await.unwrap().unwrap();
        assert_eq!((&found.key, found.fence, found.expires_at), (&request.key, grant.fence, grant.expires_at));
    }
    asked(&server);
    let released = release_at_once(&store, &ids(&requests)).await;
    let releases = asked(&server);
    assert!(released.into_iter().all(|answer| answer.unwrap() == Release::Released));
    // Four by themselves, and the others by 32 at the most, if not all had come when the first were answered.
    assert!((5..=16).contains(&acquires) && (5..=16).contains(&releases), "{acquires} and {releases} requests");
    assert_eq!(server.cli(&["KEYS", "syncguard:[io]*"]), "", "nothing is left");
}

#[tokio::test]
async fn without_batching_each_is_sent_by_itself() {
    let server = Server::start();
    let options = RedisOptions::default().with_batching(false);
    let store = Arc::new(Redis::connect_with(&server.url(), options).await.unwrap());
    prepare(&server, &store).await;
    let requests = requests("order");
    assert!(acquire_at_once(&store, &requests).await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(asked(&server), MANY as u64);
    assert!(Redis::connect(&format!("{}?batching=perhaps", server.url())).await.is_err());
}

#[tokio::test]
async fn what_fails_for_one_fails_for_no_other() {
    let server = Server::start();
    let store = Arc::new(connect(&server).await);
    prepare(&server, &store).await;
    let mut requests = requests("order");
    // A lock of another type, what is no lock, a fence beyond the highest, and an id that has another lock.
    server.cli(&["RPUSH", &record_of("order:20"), "a"]);
    server.cli(&["SET", &record_of("order:21"), "nonsense"]);
    server.cli(&["SET", &counter_of("order:22"), "900000000000000"]);
    let other = request("elsewhere");
    granted(&*store, &other).await;
    requests[23].lock_id = other.lock_id;
    let taken = request("order:24");
    granted(&*store, &taken).await;
    // And what cannot be decided at a glance.
    requests[25] = permit("order:25", 3);
    requests[26] = joining(request("order:26"), 9_000);
    asked(&server);
    let answers = acquire_at_once(&store, &requests).await;
    assert!(asked(&server) <= 24, "they were sent together");
    for (number, answer) in answers.iter().enumerate() {
        match number {
            20..=22 => assert_eq!(answer.as_ref().unwrap_err().code(), ErrorCode::Internal, "{number}: {answer:?}"),
            23 => assert_eq!(answer.as_ref().unwrap_err().code(), ErrorCode::InvalidArgument, "{answer:?}"),
            24 => assert!(matches!(answer, Ok(Acquire::Held(_))), "{answer:?}"),
            _ => assert!(matches!(answer, Ok(Acquire::Granted(_))), "{number}: {answer:?}"),
        }
    }
    assert_eq!(store.release(&taken.lock_id).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn one_key_has_one_holder_and_ids_that_ask_twice_have_one_grant() {
    let server = Server::start();
    let store = Arc::new(connect(&server).await);
    prepare(&server, &store).await;
    for round in 0..20 {
        // 16 ask for each of two keys, and each of those asks twice.
        let name = |number: usize| format!("busy-{round}:{}", number % 2);
        let first: Vec<_> = (0..MANY / 2).map(|number| request(&name(number))).collect();
        let twice: Vec<_> = first.iter().chain(&first).cloned().collect();
        let answers = acquire_at_once(&store, &twice).await;
        let granted = |number: usize| match &answers[number] {
            Ok(Acquire::Granted(grant)) => Some(grant.fence),
            _ => None,
        };
        for key in 0..2 {
            let holders: Vec<_> = (0..MANY / 2).filter(|number| number % 2 == key).filter_map(granted).collect();
            assert_eq!(holders.len(), 1, "round {round}: {answers:?}");
        }
        for number in 0..MANY / 2 {
            assert_eq!(granted(number), granted(number + MANY / 2), "round {round}, {number}");
        }
        release_at_once(&store, &ids(&first)).await;
    }
}

#[tokio::test]
async fn a_key_that_the_user_has_no_right_on_spoils_no_other() {
    let server = Server::start();
    let rules = RULES.into_iter().filter(|rule| *rule != "~syncguard:*");
    let some = ["~syncguard:first:*", "~syncguard:order:*", "~syncguard:id:*", "~syncguard:fence:syncguard:*"];
    let url = user(&server, "hunter2secret", &rules.chain(some).collect::<Vec<_>>());
    let store = Arc::new(Redis::connect(&url).await.unwrap());
    prepare(&server, &store).await;
    let mut requests = requests("order");
    requests[40] = request("forbidden");
    for (number, answer) in acquire_at_once(&store, &requests).await.iter().enumerate() {
        match number {
            40 => assert_eq!(answer.as_ref().unwrap_err().code(), ErrorCode::AuthFailed),
            _ => assert!(matches!(answer, Ok(Acquire::Granted(_))), "{number}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_full_server_refuses_all_acquires_and_takes_all_releases() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let store = Arc::new(connect(&server).await);
    prepare(&server, &store).await;
    let (before, after) = (requests("before"), requests("after"));
    assert!(acquire_at_once(&store, &before).await.into_iter().all(|answer| answer.is_ok()));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for answer in acquire_at_once(&store, &after).await {
        let error = answer.unwrap_err();
        assert!(!error.outcome_unknown(), "{error:?}");
    }
    // Whoever is refused because others hold the lock is still told so.
    assert!(held(&*store, &request("before:1")).await.holder.is_some());
    let released = release_at_once(&store, &ids(&before)).await;
    assert!(released.into_iter().all(|answer| answer.unwrap() == Release::Released));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.cli(&["KEYS", "syncguard:[aio]*"]), "", "nothing was written, nothing is left");
}

#[tokio::test]
async fn whoever_waits_in_line_is_not_passed_by_those_who_come_together() {
    let server = Server::start();
    let store = Arc::new(connect(&server).await);
    prepare(&server, &store).await;
    let holder = request("line");
    granted(&*store, &holder).await;
    let first = joining(request("line"), 9_000);
    assert_eq!(held(&*store, &first).await.place, Some(0));
    store.release(&holder.lock_id).await.unwrap();
    // It was called: nobody else is let in before it, whatever they do about the line.
    let mut others = requests("other");
    for other in &mut others[4..] {
        other.key = first.key.clone();
        other.line = Line::Heed;
    }
    others[40].line = Line::Ignore;
    for answer in &acquire_at_once(&store, &others).await[4..] {
        assert!(matches!(answer, Ok(Acquire::Held(_))), "{answer:?}");
    }
    granted(&*store, &first).await;
    assert_eq!(store.release(&id()).await.unwrap(), Release::Absent(leasehold::backend::Absence::NotFound));
}
