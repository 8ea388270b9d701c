//! How many threads the library has. Alone in its process, so that the count is exact.

use std::time::{Duration, Instant};

use leasehold::{Locks, Memory};

fn keepers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.starts_with("leasehold-keepe")).count()
}

async fn until_there_are(count: usize) {
    let started = Instant::now();
    while keepers() != count {
        assert!(started.elapsed() < Duration::from_secs(20), "{} keepers instead of {count}", keepers());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_handle_has_one_thread_from_its_first_lock_to_its_end() {
    let locks: Vec<_> = (0..5).map(|_| Locks::new(Memory::new())).collect();
    assert_eq!(keepers(), 0, "a handle that took no lock has no thread");
    for locks in &locks {
        for key in ["a", "b", "c"] {
            locks.lock(key).acquire().await.unwrap().release().await.unwrap();
        }
    }
    until_there_are(5).await;
    drop(locks);
    until_there_are(0).await;
}
