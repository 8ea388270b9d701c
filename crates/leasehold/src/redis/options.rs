use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a Redis server is used. What a URL says after its question mark overrides these.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// What all names in the server start with: `syncguard` by default, which shares locks with the Node.js library of that
    /// name. On a cluster it must contain a hash tag, such as `{locks}`, so that all locks are on one node.
    pub prefix: String,
    /// The longest that one operation may take, connecting included. 5 seconds by default.
    pub timeout: Duration,
    /// For `rediss:` URLs: whom to trust and who we are.
    pub tls: RedisTls,
    /// The user name for the sentinels, if they want one.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels, if they want one.
    pub sentinel_password: Option<String>,
}

/// Files in PEM format for connections with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
            timeout: Duration::from_secs(5),
            tls: RedisTls::default(),
            sentinel_user: None,
            sentinel_password: None,
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("tls", &self.tls)
            .field("sentinel_user", &self.sentinel_user)
            .field("sentinel_password", &self.sentinel_password.as_ref().map(|_| "hidden"))
            .finish()
    }
}
