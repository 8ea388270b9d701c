use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::{Error, HashId};

/// The name of the thing that is locked: 1 to 512 bytes of UTF-8 after Unicode NFC normalisation,
/// without NUL.
///
/// Two spellings of the same text (`é` as one code point or as `e` plus an accent) are one key.
/// Cloning is cheap.
///
/// `Debug` shows only the [hash](HashId) of the key, because keys often carry user or order
/// numbers; there is no `Display`, so that a key reaches a log only through
/// [`as_str`](Key::as_str).
///
/// ```
/// use leasehold::Key;
///
/// let key: Key = "payment:42".parse()?;
/// assert_eq!(key.as_str(), "payment:42");
/// assert_eq!(Key::new("cafe\u{301}")?, Key::new("caf\u{e9}")?);
/// assert!(Key::new("").is_err());
/// assert!(!format!("{key:?}").contains("payment"));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes of UTF-8 after normalising.
    pub const MAX_BYTES: usize = 512;

    /// Normalises and checks `key`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the key is empty, longer than
    /// [`MAX_BYTES`](Key::MAX_BYTES) once normalised, or contains NUL.
    pub fn new(key: &str) -> Result<Self, Error> {
        let key = nfc(key);
        if key.is_empty() {
            return Err(Error::invalid("the key is empty"));
        }
        if key.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!("the key has {} bytes, the limit is {}", key.len(), Self::MAX_BYTES))
                .with_hint("shorten the key, or lock a hash of it"));
        }
        if key.contains('\0') {
            return Err(Error::invalid("the key contains a NUL character"));
        }
        Ok(Self(key))
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The sanitised form, for logs and metrics.
    pub fn hash_id(&self) -> HashId {
        HashId::of(&self.0)
    }
}

/// `text` in Unicode NFC. Nearly every key is in that form already, and then nothing is recomposed.
pub(crate) fn nfc(text: &str) -> Arc<str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        text.into()
    } else {
        text.nfc().collect::<String>().into()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(#{})", self.hash_id())
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(key: &str) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl TryFrom<&str> for Key {
    type Error = Error;

    fn try_from(key: &str) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(key: String) -> Result<Self, Error> {
        Self::new(&key)
    }
}

impl TryFrom<&String> for Key {
    type Error = Error;

    fn try_from(key: &String) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl TryFrom<Cow<'_, str>> for Key {
    type Error = Error;

    fn try_from(key: Cow<'_, str>) -> Result<Self, Error> {
        Self::new(&key)
    }
}

impl TryFrom<Box<str>> for Key {
    type Error = Error;

    fn try_from(key: Box<str>) -> Result<Self, Error> {
        Self::new(&key)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.as_str().to_owned()
    }
}
