//! A process that may not start threads gets an error that says so, and never a panic.
//!
//! The limit counts the threads of a user and does not bind root, so the test runs itself again as
//! a user whom nobody else is.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::memory::Memory;
use leasehold::testing::{Fault, FaultLayer};
use leasehold::{Error, ErrorCode, LockId, Locks, Operation};
use test_support::{Case, StoreUnderTest, blocking_cases, stores, suite};

const CASES: &[Case] = blocking_cases![a_thread_limit_is_an_error_that_says_so];

/// In the environment of a process under the limit: the store.
const STORE: &str = "STORE_UNDER_THREAD_LIMIT";

/// Enough for all that a handle does.
const ENOUGH: u32 = 8;

fn main() -> ExitCode {
    match std::env::var(STORE) {
        Ok(url) => under_the_limit(&url),
        Err(_) => suite::run(suite::over(stores(), &[CASES])),
    }
}

fn a_thread_limit_is_an_error_that_says_so(store: &'static StoreUnderTest) {
    let running = store.start();
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let url = if store.is_server() { running.url() } else { file };
    for threads in (1..=4).chain([ENOUGH]) {
        for said in with_at_most(threads, &url) {
            match threads {
                1 => assert!(said.starts_with("Internal: ") && said.contains("cannot start the thread"), "{said}"),
                ENOUGH => assert_eq!(said, "fine"),
                _ => assert!(said == "fine" || said.contains("the limit on threads"), "{threads}: {said}"),
            }
        }
    }
}

/// Runs this test again with so many threads, and returns what it says of a release that fails, of
/// a store in memory, of the one at `url`, and of that by the name of its host.
fn with_at_most(threads: u32, url: &str) -> Vec<String> {
    let user = (40_000 + std::process::id() % 20_000).to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
        .args(["prlimit", &format!("--nproc={threads}:{threads}"), "--"])
        // Wherever it is, that user can execute it, if not find it.
        .arg("/proc/self/fd/0")
        .env(STORE, url)
        .stdin(Stdio::from(File::open(std::env::current_exe().unwrap()).unwrap()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{threads} threads: {}: {said} {complaints}", output.status);
    let lines: Vec<_> = said.lines().map(ToOwned::to_owned).collect();
    assert_eq!(lines.len(), 4, "{said}");
    lines
}

fn under_the_limit(url: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // First, as long as no other handle has threads.
        tell(fail_to_release().await);
        for url in ["memory:", url, &url.replace("127.0.0.1", "localhost")] {
            tell(use_a_lock(url).await);
        }
    });
    ExitCode::SUCCESS
}

fn tell(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => println!("fine"),
        Err(error) => println!("{:?}: {error}: {}", error.code(), error.hint().unwrap_or_default()),
    }
}

/// The hook for such releases wants a thread too. It does without if there is none.
async fn fail_to_release() -> Result<(), Error> {
    let (store, faults) = FaultLayer::new(Memory::new());
    let locks = Locks::new(store);
    let guard = locks.lock("k").acquire().await?;
    faults.always(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    drop(guard);
    // Whether it is told of that depends on which of them was first.
    let _ = locks.shutdown().await;
    assert_ne!(faults.tries(Operation::Release), 0);
    Ok(())
}

async fn use_a_lock(url: &str) -> Result<(), Error> {
    let locks = Locks::connect(url).await?;
    // One that could not be released is in nobody's way.
    let key = LockId::random()?;
    let guard = locks.lock(key.expose()).acquire().await?;
    guard.extend(Duration::from_secs(60)).await?;
    let waiter = tokio::spawn(locks.lock(key.expose()).wait_forever().acquire());
    tokio::task::yield_now().await;
    guard.release().await?;
    drop(waiter.await.unwrap()?);
    locks.shutdown().await.map(drop)
}
