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
use leasehold::{Error, ErrorCode, LockId, Locks, Operation, ReleaseFailure};
use test_support::{Case, StoreUnderTest, blocking_cases, stores, suite};

const CASES: &[Case] = blocking_cases![a_thread_limit_is_an_error_that_says_so];

const IN_MEMORY: &[Case] = blocking_cases![a_release_that_fails_without_a_thread_to_report_it_breaks_nothing];

/// In the environment of a process under the limit: the store.
const STORE: &str = "STORE_UNDER_THREAD_LIMIT";

/// The same, for one in memory that fails.
const FAILING: &str = "failing";

/// Enough for all that a handle does.
const ENOUGH: u32 = 8;

fn main() -> ExitCode {
    match std::env::var(STORE) {
        Ok(url) => under_the_limit(&url),
        Err(_) => {
            let mut tests = suite::over(stores(), &[CASES]);
            tests.extend(suite::over(stores().take(1), &[IN_MEMORY]));
            suite::run(tests)
        }
    }
}

fn a_thread_limit_is_an_error_that_says_so(store: &'static StoreUnderTest) {
    let running = store.start();
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let url = if store.is_server() { running.url() } else { file };
    for threads in (1..=4).chain([ENOUGH]) {
        let said = with_at_most(threads, &url);
        assert_eq!(said.len(), 3);
        said.iter().for_each(|said| check(threads, said));
    }
}

fn a_release_that_fails_without_a_thread_to_report_it_breaks_nothing(_: &'static StoreUnderTest) {
    for threads in (1..=4).chain([ENOUGH]) {
        let said = with_at_most(threads, FAILING);
        assert_eq!(said.len(), 1);
        said.iter().for_each(|said| check(threads, said));
    }
}

fn check(threads: u32, said: &str) {
    match threads {
        1 => assert!(said.starts_with("Internal: ") && said.contains("cannot start the thread"), "{said}"),
        ENOUGH => assert_eq!(said, "fine"),
        _ => assert!(said == "fine" || said.contains("the limit on threads"), "{threads}: {said}"),
    }
}

/// Runs this test again with so many threads, and returns what it says: of a store in memory, of
/// the one at `url` and of that by the name of its host, or of the one that fails.
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
    said.lines().map(ToOwned::to_owned).collect()
}

fn under_the_limit(url: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if url == FAILING {
            tell(fail_to_release().await);
        } else {
            for url in ["memory:", url, &url.replace("127.0.0.1", "localhost")] {
                tell(use_a_lock(url).await);
            }
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

/// Drops guards of which one cannot be released.
async fn fail_to_release() -> Result<(), Error> {
    let memory = Memory::new();
    let (store, faults) = FaultLayer::new(memory.clone());
    let (sender, reported) = std::sync::mpsc::channel();
    let hook = move |failure: &ReleaseFailure<'_>| sender.send(failure.error.code()).unwrap();
    let locks = Locks::builder(store).on_release_error(hook).build();
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(locks.lock(name).acquire().await?);
    }
    faults.next(Operation::Release, Fault::FailBefore(ErrorCode::AuthFailed));
    drop(guards);
    // It tells of the failure if that comes late enough.
    let _ = locks.shutdown().await;
    assert_eq!(memory.len(), 1, "the others were given back");
    drop(locks);
    assert_eq!(reported.recv(), Ok(ErrorCode::AuthFailed));
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
