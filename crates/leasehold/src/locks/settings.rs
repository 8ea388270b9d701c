use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::PlantedBug;
use super::metrics::LockMetrics;
use crate::clock::Clock;
use crate::{Error, Key, LockId};

/// What every lock of a handle has in common.
pub(super) struct Settings {
    pub(super) clock: Clock,
    pub(super) operation_timeout: Duration,
    pub(super) release_timeout: Duration,
    pub(super) on_release_error: Arc<dyn Fn(&ReleaseFailure<'_>) + Send + Sync>,
    pub(super) metrics: LockMetrics,
    #[cfg(feature = "planted-bugs")]
    pub(super) planted: Option<PlantedBug>,
}

impl Settings {
    #[cfg(feature = "planted-bugs")]
    pub(super) fn planted(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[allow(clippy::unused_self)]
    pub(super) const fn planted(&self, _: PlantedBug) -> bool {
        false
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            operation_timeout: Duration::from_secs(10),
            release_timeout: Duration::from_secs(5),
            on_release_error: Arc::new(warn_of_release_failure),
            metrics: LockMetrics::off(),
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("operation_timeout", &self.operation_timeout)
            .field("release_timeout", &self.release_timeout)
            .finish_non_exhaustive()
    }
}

/// A release that failed in the background, or after [`run`](crate::LockRequest::run), where no caller could be told.
/// The lock stays taken until its lease runs out.
///
/// `Debug` hides the key and the lock id.
#[derive(Debug)]
pub struct ReleaseFailure<'a> {
    /// What was locked.
    pub key: &'a Key,
    /// The id of the lock.
    pub lock_id: &'a LockId,
    /// Why it could not be released. [`LockLost`](crate::ErrorCode::LockLost) if it was no longer ours.
    pub error: &'a Error,
}

fn warn_of_release_failure(failure: &ReleaseFailure<'_>) {
    tracing::warn!(
        key = %failure.key.hash_id(),
        code = ?failure.error.code(),
        error = %failure.error,
        "a lock was not released and stays taken until its lease runs out"
    );
}
