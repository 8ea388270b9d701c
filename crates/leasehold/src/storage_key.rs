use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::key::nfc;
use crate::{Error, Key};

/// How the names of stored records are derived from keys: a prefix, and the longest name the store
/// takes.
///
/// A name that would be too long is replaced by 128 bits of its SHA-256. The derivation is shared
/// with other programs that use the same stores, so it never changes.
///
/// ```
/// use leasehold::backend::StorageKeys;
/// use leasehold::Key;
///
/// let keys = StorageKeys::new("app", 1000, 26)?;
/// let name = keys.lock(&Key::new("payment:42")?)?;
/// assert_eq!(name, "app:payment:42");
/// assert_eq!(keys.fence(&name)?, "app:fence:app:payment:42");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageKeys {
    prefix: String,
    limit: usize,
    reserve: usize,
}

impl StorageKeys {
    /// Names under `prefix` (whose trailing colons are dropped), of at most `limit` bytes, of which
    /// `reserve` are kept free for what the store appends.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the prefix leaves no room for any
    /// key.
    pub fn new(prefix: &str, limit: usize, reserve: usize) -> Result<Self, Error> {
        let mut prefix = prefix.trim_end_matches(':').to_owned();
        if !prefix.is_empty() {
            prefix.push(':');
        }
        if prefix.len() + reserve > limit {
            return Err(prefix_too_long());
        }
        Ok(Self { prefix, limit, reserve })
    }

    /// The name of the record of `key`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the prefix is too long for even a
    /// hashed name.
    pub fn lock(&self, key: &Key) -> Result<String, Error> {
        self.name(key.as_str())
    }

    /// The name of the fence counter that belongs to the record named `lock`, a result of
    /// [`lock`](StorageKeys::lock): derived from that name, so that every key has a counter of its
    /// own even when names are hashed.
    ///
    /// # Errors
    ///
    /// As [`lock`](StorageKeys::lock).
    pub fn fence(&self, lock: &str) -> Result<String, Error> {
        self.name(&format!("fence:{lock}"))
    }

    /// The name made of the prefix and `rest`, hashed if too long.
    ///
    /// # Errors
    ///
    /// As [`lock`](StorageKeys::lock).
    pub fn name(&self, rest: &str) -> Result<String, Error> {
        let plain = format!("{}{}", self.prefix, nfc(rest));
        if plain.len() + self.reserve <= self.limit { Ok(plain) } else { self.hashed(rest) }
    }

    /// The name that [`name`](StorageKeys::name) gives to what is too long, for what cannot be used
    /// as it is for another reason.
    ///
    /// # Errors
    ///
    /// As for [`name`](StorageKeys::name).
    pub fn hashed(&self, rest: &str) -> Result<String, Error> {
        let plain = format!("{}{}", self.prefix, nfc(rest));
        let digest = Sha256::digest(plain.as_bytes());
        let hashed = format!("{}{}", self.prefix, URL_SAFE_NO_PAD.encode(&digest[..16]));
        if hashed.len() + self.reserve > self.limit {
            return Err(prefix_too_long());
        }
        Ok(hashed)
    }
}

fn prefix_too_long() -> Error {
    Error::invalid("the prefix is too long for this store").with_hint("choose a shorter prefix")
}
