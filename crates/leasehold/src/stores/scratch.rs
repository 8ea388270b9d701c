use super::store_of;
use crate::{Error, Key, LockId};

/// Keys for a try of a store, such as a benchmark: drawn at random, so that nobody else has ever
/// used them, nor will. So they are the only ones of which a store may forget what it otherwise
/// keeps for ever, the last fence of a key.
///
/// ```
/// use leasehold::Locks;
/// use leasehold::stores::ScratchKeys;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let url = "memory:";
/// let keys = ScratchKeys::new("try-out", 2)?;
/// let locks = Locks::connect(url).await?;
/// for key in keys.keys() {
///     locks.lock(key).acquire().await?.release().await?;
/// }
/// keys.forget(url).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ScratchKeys {
    prefix: String,
    keys: Vec<Key>,
}

impl ScratchKeys {
    /// So many keys of the form `NAME:RANDOM:NUMBER`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the name makes no key;
    /// [`Internal`](crate::ErrorCode::Internal) if the system has no random numbers.
    pub fn new(name: &str, count: usize) -> Result<Self, Error> {
        let prefix = format!("{name}:{}:", LockId::random()?.hash_id());
        let keys = (0..count).map(|number| Key::new(&format!("{prefix}{number}"))).collect::<Result<_, _>>()?;
        Ok(Self { prefix, keys })
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// What all of them start with, and no key of anybody else.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Has the store at `url` forget the fences of these keys, none of which may be held any more.
    ///
    /// Cancel-safe: some of them may stay then.
    ///
    /// # Errors
    ///
    /// The store's: [`AuthFailed`](crate::ErrorCode::AuthFailed) where fences may not be deleted.
    pub async fn forget(&self, url: &str) -> Result<(), Error> {
        store_of(url)?.driver()?.forget(url, &self.keys).await
    }
}
