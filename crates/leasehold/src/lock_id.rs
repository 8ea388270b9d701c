use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Error, ErrorCode, HashId};

/// The proof that a lock is yours: 16 random bytes, written as 22 base64url characters.
///
/// The client makes the id before it sends the request, so that an answer that never arrives can be
/// asked for again or undone. Whoever knows the id can extend and release the lock: treat it like a
/// password. `Debug` shows its [hash](HashId), there is no `Display` and no `Serialize`; the text
/// is had only through [`expose`](LockId::expose).
///
/// ```
/// use leasehold::LockId;
///
/// let id = LockId::random()?;
/// assert_eq!(id.expose().len(), 22);
/// assert_eq!(id.expose().parse::<LockId>()?, id);
/// assert!(!format!("{id:?}").contains(id.expose()));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId([u8; LockId::LEN]);

impl LockId {
    /// The number of characters of every lock id.
    pub const LEN: usize = 22;

    /// A new id from the operating system's secure random source. It never starts with a hyphen, so
    /// that it can be an argument of a command.
    ///
    /// # Errors
    ///
    /// [`Internal`](ErrorCode::Internal) if the operating system has no random bytes to give. There
    /// is no weaker fallback.
    pub fn random() -> Result<Self, Error> {
        loop {
            let id = Self::draw()?;
            // A command would take it for an option.
            if id.0[0] != b'-' {
                return Ok(id);
            }
        }
    }

    fn draw() -> Result<Self, Error> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes).map_err(|source| {
            Error::new(ErrorCode::Internal, "the operating system gave no random bytes").with_source(source)
        })?;
        let mut text = [0u8; Self::LEN];
        // 16 bytes are exactly 22 characters, so the slice never runs out.
        let written = URL_SAFE_NO_PAD
            .encode_slice(bytes, &mut text)
            .map_err(|source| Error::new(ErrorCode::Internal, "cannot encode a lock id").with_source(source))?;
        debug_assert_eq!(written, Self::LEN);
        Ok(Self(text))
    }

    /// The raw text. It lets its reader extend and release the lock.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The sanitised form, for logs and metrics.
    pub fn hash_id(&self) -> HashId {
        HashId::of(self.expose())
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockId(#{})", self.hash_id())
    }
}

impl FromStr for LockId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-';
        match <[u8; Self::LEN]>::try_from(text.as_bytes()) {
            Ok(bytes) if bytes.iter().all(allowed) => Ok(Self(bytes)),
            _ => Err(Error::invalid("a lock id is exactly 22 characters of A-Z, a-z, 0-9, '_' and '-'")),
        }
    }
}

impl TryFrom<&str> for LockId {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}
