//! A handle that was copied by `fork(2)`: the copy says so, and leaves the parent's locks and
//! connections alone.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid_nohang};
use leasehold::memory::Memory;
use leasehold::{ErrorCode, Guard, LockState, Locks, Loss};
use test_support::{DEADLINE, key};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs `check` in a fork of this process, which has no thread but this one.
fn in_a_fork(check: impl FnOnce()) {
    let Fork::Parent(child) = fork().unwrap() else {
        let passed = catch_unwind(AssertUnwindSafe(check)).is_ok();
        std::process::exit(if passed { 0 } else { 1 });
    };
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = waitpid_nohang(child).unwrap() {
            break status;
        }
        if begun.elapsed() > DEADLINE {
            let _ = std::process::Command::new("kill").args(["-KILL", &child.to_string()]).status();
            panic!("the fork hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status, 0, "the fork failed: it panicked if this is 256, else a signal ended it");
}

fn assert_belongs_to_the_parent<T: std::fmt::Debug>(outcome: Result<T, leasehold::Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.to_string().contains("forked"), "{error}");
    assert!(error.hint().unwrap().contains("child"), "{error:?}");
}

/// What the copies of a handle and a guard do in a fork.
async fn copies_do_nothing(locks: Locks, guard: Guard, lease: leasehold::Lease) {
    assert_eq!((lease.state(), lease.loss()), (LockState::Lost, Some(Loss::Forked)));
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert_eq!(lease.lost().await, Loss::Forked);
    for outcome in [lease.extend(Duration::from_secs(60)).await, lease.ensure(Duration::from_secs(1)).await] {
        assert_eq!(outcome.unwrap_err().loss(), Some(Loss::Forked));
    }
    assert_belongs_to_the_parent(locks.lock("other").acquire().await);
    assert_belongs_to_the_parent(locks.lock("held").try_acquire().await);
    assert_belongs_to_the_parent(locks.is_locked("held").await);
    assert_belongs_to_the_parent(locks.release(lease.lock_id()).await);
    assert_belongs_to_the_parent(locks.extend(lease.lock_id(), Duration::from_secs(60)).await);
    assert_belongs_to_the_parent(locks.force_release("held").await);
    assert_belongs_to_the_parent(locks.release_all().await);
    assert_belongs_to_the_parent(locks.shutdown().await);
    assert_eq!(guard.release().await.unwrap_err().loss(), Some(Loss::Forked));
}

/// Forks while a lock is held, outside of the runtime and within it, and looks after the parent's
/// lock.
fn a_fork_leaves_the_lock_alone(url: &str, connect: impl AsyncFn() -> Locks) {
    let runtime = runtime();
    let locks = runtime.block_on(connect());
    let hold = async |name: &str| locks.lock(name).ttl(Duration::from_secs(600)).acquire().await.unwrap();
    let (held, dropped) = runtime.block_on(async { (hold("held").await, hold("dropped").await) });
    let fences = (held.fence(), dropped.fence());
    let remote = !url.starts_with("memory");
    let guards = std::cell::RefCell::new(Some((held, dropped)));
    let check = |runtime: &Runtime| {
        let (held, dropped) = guards.borrow_mut().take().unwrap();
        let lease = held.lease().clone();
        drop(dropped);
        runtime.block_on(async {
            if remote {
                assert_belongs_to_the_parent(locks.backend().is_locked(&key("held")).await);
            }
            copies_do_nothing(locks.clone(), held, lease).await;
        });
    };
    in_a_fork(|| check(&self::runtime()));
    in_a_fork(|| check(&runtime));
    let (held, dropped) = guards.take().unwrap();
    runtime.block_on(async {
        assert_eq!((held.state(), dropped.state()), (LockState::Held, LockState::Held));
        held.extend(Duration::from_secs(600)).await.unwrap();
        for (name, fence) in [("held", fences.0), ("dropped", fences.1)] {
            assert_eq!(locks.get_by_key(name).await.unwrap().unwrap().fence, fence, "{name} is as it was");
        }
        assert!(!locks.is_locked("other").await.unwrap());
        held.release().await.unwrap();
        dropped.release().await.unwrap();
        assert_eq!(locks.shutdown().await.unwrap(), 0);
    });
}

#[test]
fn a_fork_leaves_the_locks_of_its_parent_alone_in_memory() {
    a_fork_leaves_the_lock_alone("memory:", async || Locks::new(Memory::new()));
}

#[cfg(feature = "sqlite")]
#[test]
fn a_fork_leaves_the_locks_of_its_parent_alone_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    a_fork_leaves_the_lock_alone(&url, async || Locks::connect(&url).await.unwrap());
}

#[cfg(feature = "sqlite")]
#[test]
fn a_fork_does_not_open_a_file_that_its_parent_had_open() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let open = || runtime().block_on(Locks::connect(&url));
    in_a_fork(|| drop(open().unwrap()));
    let parent = open().unwrap();
    in_a_fork(|| assert_belongs_to_the_parent(open()));
    drop(parent);
}

#[cfg(feature = "redis")]
#[test]
fn a_fork_leaves_the_locks_of_its_parent_alone_in_redis() {
    let server = test_servers::Redis::start();
    a_fork_leaves_the_lock_alone(&server.url(), async || Locks::connect(&server.url()).await.unwrap());
    a_fork_has_handles_of_its_own(&server.url());
}

#[cfg(feature = "postgres")]
#[test]
fn a_fork_leaves_the_locks_of_its_parent_alone_in_postgres() {
    let server = test_servers::Postgres::start();
    runtime().block_on(Locks::migrate(&server.url())).unwrap();
    a_fork_leaves_the_lock_alone(&server.url(), async || Locks::connect(&server.url()).await.unwrap());
    a_fork_has_handles_of_its_own(&server.url());
}

#[cfg(feature = "firestore")]
#[test]
fn a_fork_leaves_the_locks_of_its_parent_alone_in_firestore() {
    let server = test_servers::Firestore::start();
    a_fork_leaves_the_lock_alone(&server.url(), async || Locks::connect(&server.url()).await.unwrap());
    a_fork_has_handles_of_its_own(&server.url());
}

/// A child that connects by itself is a process like any other.
#[cfg(any(feature = "firestore", feature = "redis", feature = "postgres"))]
fn a_fork_has_handles_of_its_own(url: &str) {
    let runtime = runtime();
    let locks = runtime.block_on(Locks::connect(url)).unwrap();
    let held = runtime.block_on(locks.lock("held").acquire()).unwrap();
    in_a_fork(|| {
        self::runtime().block_on(async {
            let locks = Locks::connect(url).await.unwrap();
            assert!(locks.lock("held").try_acquire().await.unwrap().is_none());
            locks.lock("own").acquire().await.unwrap().release().await.unwrap();
            locks.shutdown().await.unwrap();
        });
    });
    runtime.block_on(held.release()).unwrap();
}
