//! A process that may not start threads gets an error that says so, and never a panic.
//!
//! The limit counts the threads of a user and does not bind root, so the test runs itself again as
//! a user whom nobody else is.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::{Error, Locks};
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
        let [memory, other] = with_at_most(threads, &url);
        for said in [&memory, &other] {
            match threads {
                1 => assert!(said.starts_with("Internal: cannot start the thread"), "{said}"),
                ENOUGH => assert_eq!(said, "fine"),
                _ => assert!(said == "fine" || said.contains("the limit on threads"), "{threads}: {said}"),
            }
        }
    }
}

/// Runs this test again with so many threads, and returns what it says of a store in memory and of
/// the one at `url`.
fn with_at_most(threads: u32, url: &str) -> [String; 2] {
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
    let mut lines = said.lines().map(ToOwned::to_owned);
    [lines.next().unwrap(), lines.next().unwrap()]
}

fn under_the_limit(url: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for url in ["memory:", url] {
            match use_a_lock(url).await {
                Ok(()) => println!("fine"),
                Err(error) => println!("{:?}: {error}: {}", error.code(), error.hint().unwrap_or_default()),
            }
        }
    });
    ExitCode::SUCCESS
}

async fn use_a_lock(url: &str) -> Result<(), Error> {
    let locks = Locks::connect(url).await?;
    let guard = locks.lock("k").acquire().await?;
    guard.extend(Duration::from_secs(60)).await?;
    let waiter = tokio::spawn(locks.lock("k").wait_forever().acquire());
    tokio::task::yield_now().await;
    guard.release().await?;
    drop(waiter.await.unwrap()?);
    locks.shutdown().await.map(drop)
}
