use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::metrics::LockMetrics;
use super::reports::OnReleaseError;
use crate::clock::Clock;
use crate::{Error, Key, LockId};

/// What every lock of a handle has in common.
pub(super) struct Settings {
    pub(super) clock: Clock,
    /// The longest that a call to the store may take; the store's own limit decides if `None`.
    pub(super) call_timeout: Option<Duration>,
    pub(super) release_timeout: Duration,
    pub(super) on_release_error: OnReleaseError,
    pub(super) metrics: LockMetrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            call_timeout: None,
            release_timeout: Duration::from_secs(5),
            on_release_error: Arc::new(warn_of_release_failure),
            metrics: LockMetrics::off(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("call_timeout", &self.call_timeout)
            .field("release_timeout", &self.release_timeout)
            .finish_non_exhaustive()
    }
}

/// A release that failed in the background, or after [`run`](crate::LockRequest::run), where no
/// caller could be told. The lock stays taken until its lease runs out.
///
/// `Debug` hides the key and the lock id.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReleaseFailure<'a> {
    /// What was locked.
    pub key: &'a Key,
    /// The id of the lock.
    pub lock_id: &'a LockId,
    /// Why it could not be released. [`LockLost`](crate::ErrorCode::LockLost) if it was no longer
    /// ours.
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
