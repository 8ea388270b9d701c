//! What takes the place of an exclusive lock where a key is held or kept in another way, in the
//! layouts that other programs read.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The number of characters of the hash that make the id unique.
pub(crate) const HASH_LENGTH: usize = 20;

/// What the ids of all kinds start with, and no lock id does.
pub(crate) const MARK: &str = "~";

/// Why there is a record with an id that is no lock id. Programs that know neither lines nor modes
/// see a lock that somebody else holds, and cannot end it, because no lock id has such a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// The key is shared; who shares it is elsewhere.
    Shared,
    /// Permits are held; who has them is elsewhere.
    Permits,
    /// Nobody holds the key. It is kept for the first in line, who has been called.
    Called,
}

impl Placeholder {
    const ALL: [(Placeholder, &str); 3] =
        [(Placeholder::Shared, "~s"), (Placeholder::Permits, "~p"), (Placeholder::Called, "~q")];

    /// What ids of this kind start with.
    pub(crate) fn start(self) -> &'static str {
        let found = Self::ALL.into_iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, start)| start)
    }

    /// The id of a record of this kind: as long as a lock id, and different for each key, as some
    /// layouts demand.
    pub(crate) fn id(self, storage_key: &str) -> String {
        format!("{}{}", self.start(), hash(storage_key))
    }

    /// The kind of a record with this id, if it is not a lock's.
    pub(crate) fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, start)| id.starts_with(start)).map(|(kind, _)| kind)
    }
}

/// What makes the ids of a key's records its own: all that follows their first two characters.
pub(crate) fn hash(storage_key: &str) -> String {
    let mut hash = URL_SAFE_NO_PAD.encode(Sha256::digest(storage_key));
    hash.truncate(HASH_LENGTH);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockId;

    #[test]
    fn ids_are_as_long_as_lock_ids_and_are_none() {
        for (kind, _) in Placeholder::ALL {
            let id = kind.id("locks:order:42");
            assert_eq!(id.len(), LockId::LEN);
            assert!(id.parse::<LockId>().is_err());
            assert_eq!(Placeholder::of(&id), Some(kind));
            assert_ne!(id, kind.id("locks:order:43"));
        }
        assert_eq!(Placeholder::of(LockId::random().unwrap().expose()), None);
    }
}
