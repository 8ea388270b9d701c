use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::key::nfc;

/// The sanitised form of a key or lock id: 24 lower-case hex digits, safe to log.
///
/// The hash is for telling identifiers apart in logs and metrics. It is not cryptographic: somebody
/// who can guess the key can confirm the guess.
///
/// ```
/// use leasehold::HashId;
///
/// assert_eq!(HashId::of("payment:order-123").to_string(), "879be6bfb61aea3d55f48539");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HashId([u32; 3]);

impl HashId {
    /// The hash of `text`, taken over the UTF-16 code units of its NFC form, as the other users of
    /// the storage layout do.
    pub fn of(text: &str) -> Self {
        #[cfg(test)]
        tests::HASHED.set(tests::HASHED.get() + 1);
        let text = nfc(text);
        let mut hash = [0u32; 3];
        for unit in text.encode_utf16() {
            let unit = u32::from(unit);
            hash[0] = hash[0].wrapping_mul(31).wrapping_add(unit);
            hash[1] = hash[1].wrapping_mul(127).wrapping_add(unit.wrapping_mul(3));
            hash[2] = hash[2].wrapping_mul(2047).wrapping_add(unit.wrapping_mul(7));
        }
        Self(hash)
    }
}

impl fmt::Display for HashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:08x}{b:08x}{c:08x}")
    }
}

impl fmt::Debug for HashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashId({self})")
    }
}

impl FromStr for HashId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 24 || !text.bytes().all(digits) {
            return Err(Error::invalid("a hash id is 24 lower-case hex digits"));
        }
        let mut hash = [0u32; 3];
        for (part, value) in hash.iter_mut().enumerate() {
            *value = u32::from_str_radix(&text[part * 8..part * 8 + 8], 16)
                .map_err(|_| Error::invalid("a hash id is 24 lower-case hex digits"))?;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for HashId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<HashId> for String {
    fn from(hash: HashId) -> Self {
        hash.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::layers::TelemetryLayer;
    use crate::memory::Memory;
    use crate::{Key, Locks};

    thread_local! {
        /// How many hashes this thread has made.
        pub(super) static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    #[tokio::test]
    async fn nothing_is_hashed_on_the_way_of_an_operation() {
        let key = Key::new("k").unwrap();
        for locks in [Locks::new(Memory::new()), Locks::new(TelemetryLayer::new(Memory::new(), |_| {}))] {
            let guard = locks.lock(&key).acquire().await.unwrap();
            assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
            assert!(locks.is_locked(&key).await.unwrap());
            guard.ensure(std::time::Duration::from_secs(31)).await.unwrap();
            guard.release().await.unwrap();
        }
        assert_eq!(HASHED.get(), 0, "with a layer it happens on the layer's thread");
        key.hash_id();
        assert_eq!(HASHED.get(), 1, "the counter counts");
    }
}
