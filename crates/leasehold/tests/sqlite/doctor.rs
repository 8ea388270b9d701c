//! An examination finds what endangers locks.

use leasehold::{Locks, Verdict};
use test_support::check;

use crate::support::{directory, raw};

#[tokio::test]
async fn locks_from_before_the_clock_was_set_back_are_found() {
    let (_directory, path) = directory();
    let url = format!("sqlite:{}", path.display());
    let locks = Locks::connect(&url).await.unwrap();
    let _stale = locks.lock("stale").acquire().await.unwrap().leak();
    let _fresh = locks.lock("fresh").acquire().await.unwrap();
    let checks = Locks::examine(&url).await.unwrap();
    assert_eq!(check(&checks, "lock times").verdict, Verdict::Ok);

    let hour = "UPDATE locks SET acquired_at_ms = acquired_at_ms + 3600000, expires_at_ms = expires_at_ms + 3600000";
    assert_eq!(raw(&path).execute(&format!("{hour} WHERE key = 'stale'"), []).unwrap(), 1);
    let checks = Locks::examine(&url).await.unwrap();
    let found = check(&checks, "lock times");
    assert_eq!(found.verdict, Verdict::Warn);
    for words in ["1 of 2 locks", "in the future", "force-release"] {
        assert!(found.detail.contains(words), "{found:?}");
    }
    assert!(!found.detail.contains("stale"), "{found:?}");
}
