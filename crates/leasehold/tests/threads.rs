//! How many threads the library has. Alone in its process, so that the count is exact.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Locks;
use leasehold::memory::Memory;
use test_support::eventually;

/// How many threads of each name the library has.
fn threads() -> BTreeMap<String, usize> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let mut threads = BTreeMap::new();
    for name in tasks.flatten().map(name).filter(|name| name.starts_with("leasehold-")) {
        *threads.entry(name.trim().to_owned()).or_default() += 1;
    }
    // One for all the memory stores of a process.
    threads.remove("leasehold-sweep");
    threads
}

async fn until_there_are(expected: &[(&str, usize)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    eventually(&format!("the threads are {expected:?}"), async || threads() == expected).await;
}

/// Locks are held, waited for and renewed through one handle, which keeps, listens and cleans up.
async fn use_all_of_it(locks: &Locks) {
    for key in ["a", "b", "c"] {
        let guard = locks.lock(key).ttl(Duration::from_millis(150)).acquire().await.expect("it works");
        let waiter = tokio::spawn(locks.lock(key).wait_forever().acquire());
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Lost, if this machine was too slow for such a short ttl.
        let _ = guard.release().await;
        drop(waiter.await.expect("it works").expect("it works"));
    }
}

/// The name of a thread is cut after 15 characters.
const KEEPER: &str = "leasehold-keepe";

/// One after the other, also where all tests of a file share a process.
#[tokio::test]
async fn a_handle_has_one_thread_from_its_first_lock_to_its_end() {
    memory().await;
    #[cfg(feature = "redis")]
    redis().await;
    #[cfg(feature = "postgres")]
    postgres().await;
    #[cfg(feature = "sqlite")]
    sqlite().await;
}

async fn memory() {
    let locks: Vec<_> = (0..5).map(|_| Locks::new(Memory::new())).collect();
    until_there_are(&[]).await;
    for locks in &locks {
        use_all_of_it(locks).await;
    }
    until_there_are(&[(KEEPER, 5)]).await;
    drop(locks);
    until_there_are(&[]).await;
}

#[cfg(feature = "redis")]
async fn redis() {
    let server = test_servers::Redis::start();
    let locks = Locks::connect(&server.url()).await.expect("it works");
    use_all_of_it(&locks).await;
    until_there_are(&[(KEEPER, 1)]).await;
    drop(locks);
    until_there_are(&[]).await;
}

#[cfg(feature = "postgres")]
async fn postgres() {
    let server = test_servers::Postgres::start();
    Locks::migrate(&server.url()).await.expect("it works");
    let locks = Locks::connect(&server.url()).await.expect("it works");
    use_all_of_it(&locks).await;
    until_there_are(&[(KEEPER, 1)]).await;
    drop(locks);
    until_there_are(&[]).await;
}

#[cfg(feature = "sqlite")]
async fn sqlite() {
    let directory = tempfile::tempdir().expect("it works");
    let locks = Locks::new(leasehold::sqlite::Sqlite::open(directory.path().join("locks.db")).await.expect("it works"));
    use_all_of_it(&locks).await;
    // One more owns the database.
    until_there_are(&[(KEEPER, 1), ("leasehold-sqlit", 1)]).await;
    drop(locks);
    until_there_are(&[]).await;
}
