use super::Locks;
use crate::{Error, Memory};

impl Locks {
    /// A handle on the store at `url`. The scheme chooses the store:
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `memory:` | a new [`Memory`] of its own |
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the URL names no store this build knows; the message
    /// does not repeat the URL, which may contain a password. Otherwise the store's error.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::invalid("the store's URL has no scheme").with_hint("for example memory:"));
        };
        match scheme {
            "memory" if rest.trim_start_matches('/').is_empty() => Ok(Self::new(Memory::new())),
            "memory" => Err(Error::invalid("a memory: URL takes nothing after the colon")),
            _ => Err(Error::invalid("the store's URL has a scheme this build does not know")
                .with_hint("the known ones are: memory:")),
        }
    }
}
