use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::Capabilities;

/// How a Redis server is used. What a URL says after its question mark overrides these.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// What all names in the server start with: `syncguard` by default, which shares locks with the
    /// Node.js library of that name. On a cluster it must contain a hash tag, such as `{locks}`, so
    /// that all locks are on one node.
    pub prefix: String,
    /// The longest that one operation may take, connecting included. 5 seconds by default.
    pub timeout: Duration,
    /// Whether requests that come while others are on their way are sent together, which they are
    /// by default. Those who measure may want to know what it brings.
    pub batching: bool,
    /// For `rediss:` URLs: whom to trust and who we are.
    pub tls: RedisTls,
    /// A file with the password for the server, instead of one in the URL. It is read when the
    /// handle is made; a line end after the password is not part of it.
    pub password_file: Option<PathBuf>,
    /// The user name for the sentinels, if they want one.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels, if they want one.
    pub sentinel_password: Option<String>,
}

/// Files in PEM format for connections with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisTls {
    /// The certificates of the authorities to trust, instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Our certificate, for servers that want one.
    pub cert: Option<PathBuf>,
    /// The private key of our certificate.
    pub key: Option<PathBuf>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "syncguard".to_owned(),
            timeout: Capabilities::DEFAULT_CALL_TIMEOUT,
            batching: true,
            tls: RedisTls::default(),
            password_file: None,
            sentinel_user: None,
            sentinel_password: None,
        }
    }
}

impl RedisOptions {
    /// What all names in the server start with.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest that one operation may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether requests that come while others are on their way are sent together.
    #[must_use]
    pub fn with_batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Whom to trust and who we are, for `rediss:` URLs.
    #[must_use]
    pub fn with_tls(mut self, tls: RedisTls) -> Self {
        self.tls = tls;
        self
    }

    /// A file with the password for the server.
    #[must_use]
    pub fn with_password_file(mut self, password_file: impl Into<PathBuf>) -> Self {
        self.password_file = Some(password_file.into());
        self
    }

    /// The user name for the sentinels.
    #[must_use]
    pub fn with_sentinel_user(mut self, sentinel_user: impl Into<String>) -> Self {
        self.sentinel_user = Some(sentinel_user.into());
        self
    }

    /// The password for the sentinels.
    #[must_use]
    pub fn with_sentinel_password(mut self, sentinel_password: impl Into<String>) -> Self {
        self.sentinel_password = Some(sentinel_password.into());
        self
    }
}

impl RedisTls {
    /// The certificates of the authorities to trust.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Our certificate.
    #[must_use]
    pub fn with_cert(mut self, cert: impl Into<PathBuf>) -> Self {
        self.cert = Some(cert.into());
        self
    }

    /// The private key of our certificate.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<PathBuf>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("batching", &self.batching)
            .field("tls", &self.tls)
            .field("password_file", &self.password_file)
            .field("sentinel_user", &self.sentinel_user)
            .field("sentinel_password", &self.sentinel_password.as_ref().map(|_| "hidden"))
            .finish()
    }
}
