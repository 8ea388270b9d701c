use std::path::PathBuf;
use std::time::Duration;

use super::clocks::WallClock;
use crate::backend::Capabilities;

/// How a Firestore database is used. What a URL says after its question mark overrides these.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirestoreOptions {
    /// The collection of the locks: `locks` by default, as the Node.js library SyncGuard has it.
    pub locks: String,
    /// The collection of the fence counters: `fence_counters` by default. It must be another one.
    pub fences: String,
    /// The longest that one operation may take, connecting included. 5 seconds by default.
    pub timeout: Duration,
    /// `host:port` of an emulator, which is spoken to without TLS and without credentials. By
    /// default what the variable `FIRESTORE_EMULATOR_HOST` says, if it is set.
    pub emulator: Option<String>,
    /// `host` or `host:port` of the service, if it is not Google's usual one. Always with TLS.
    pub endpoint: Option<String>,
    /// The certificates of the authorities to trust, instead of those of the operating system, in
    /// PEM format.
    pub ca: Option<PathBuf>,
    /// The key file of a service account. Without it, application default credentials are used.
    pub credentials: Option<PathBuf>,
    /// This host's clock, or one that a test has set wrong.
    pub(super) clock: WallClock,
}

impl Default for FirestoreOptions {
    fn default() -> Self {
        Self {
            locks: "locks".to_owned(),
            fences: "fence_counters".to_owned(),
            timeout: Capabilities::DEFAULT_CALL_TIMEOUT,
            emulator: None,
            endpoint: None,
            ca: None,
            credentials: None,
            clock: WallClock::default(),
        }
    }
}

impl FirestoreOptions {
    /// The collection of the locks.
    #[must_use]
    pub fn with_locks(mut self, locks: impl Into<String>) -> Self {
        self.locks = locks.into();
        self
    }

    /// The collection of the fence counters.
    #[must_use]
    pub fn with_fences(mut self, fences: impl Into<String>) -> Self {
        self.fences = fences.into();
        self
    }

    /// The longest that one operation may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// `host:port` of an emulator.
    #[must_use]
    pub fn with_emulator(mut self, emulator: impl Into<String>) -> Self {
        self.emulator = Some(emulator.into());
        self
    }

    /// `host` or `host:port` of the service.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// The certificates of the authorities to trust.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// The key file of a service account.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Into<PathBuf>) -> Self {
        self.credentials = Some(credentials.into());
        self
    }
}
