use std::time::{Duration, Instant};

use crate::DEADLINE;

/// Waits for a condition that something in the background brings about.
///
/// # Panics
///
/// If it does not hold within the [`DEADLINE`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for something that must happen.
///
/// # Panics
///
/// If it does not happen within the [`DEADLINE`], rather than hang.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(DEADLINE, future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
