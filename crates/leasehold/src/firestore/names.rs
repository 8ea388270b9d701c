//! Where locks and fences are: the names of documents.

use super::FirestoreOptions;
use super::place::Place;
use crate::backend::StorageKeys;
use crate::{Error, Key};

/// The longest id of a document, in bytes.
const LONGEST_ID: usize = 1500;

/// The names of the documents of one database.
#[derive(Clone, Debug)]
pub(super) struct Names {
    keys: StorageKeys,
    /// What the names of all documents start with, without a slash at its end.
    pub(super) root: String,
    pub(super) locks: String,
    pub(super) fences: String,
}

impl Names {
    pub(super) fn new(place: &Place, options: &FirestoreOptions) -> Result<Self, Error> {
        Ok(Self {
            keys: StorageKeys::new("", LONGEST_ID, 0)?,
            root: format!("{}/documents", place.database),
            locks: options.locks.clone(),
            fences: options.fences.clone(),
        })
    }

    /// The id of a key's lock. A key that cannot be one has the start of its hash instead.
    pub(super) fn id(&self, key: &Key) -> Result<String, Error> {
        let id = self.keys.lock(key)?;
        if is_id(&id) { Ok(id) } else { self.keys.hashed(key.as_str()) }
    }

    /// The name of the document of a lock.
    pub(super) fn lock(&self, id: &str) -> String {
        format!("{}/{}/{id}", self.root, self.locks)
    }

    /// The name of the document with the last fence of a lock.
    pub(super) fn fence(&self, id: &str) -> Result<String, Error> {
        Ok(format!("{}/{}/{}", self.root, self.fences, self.keys.fence(id)?))
    }

    /// The id of the lock in the document of this name, if it is that of a lock.
    pub(super) fn id_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.root)?.strip_prefix('/')?.strip_prefix(&self.locks)?.strip_prefix('/')
    }
}

/// Whether this may be the id of a document or of a collection.
pub(super) fn is_id(text: &str) -> bool {
    let reserved = text.len() >= 4 && text.starts_with("__") && text.ends_with("__");
    !text.is_empty() && text.len() <= LONGEST_ID && !text.contains('/') && !matches!(text, "." | "..") && !reserved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firestore::url::Target;

    fn names() -> Names {
        let (place, options) =
            Target::read("firestore://p?emulator=h:1", FirestoreOptions::default()).unwrap().place().unwrap();
        Names::new(&place, &options).unwrap()
    }

    #[test]
    fn keys_are_ids_as_they_are_unless_they_cannot_be() {
        let names = names();
        let id = |key: &str| names.id(&Key::new(key).unwrap()).unwrap();
        for same in ["payment:42", "a b", "__", "___", "__x", "...", "é"] {
            assert_eq!(id(same), same);
        }
        // 128 bits of SHA-256 of the key, as the shared layout has it.
        for (key, hashed) in [
            ("a/b", "wUzdwDP2S53qgOpnXPKAoA"),
            (".", "zbTuKuppzGqDMxu-ltwsqg"),
            ("..", "XsH35wDzfD0LKYHQSFX8NA"),
            ("__x__", "qRewOx4-WDoNeFxzZBzIiA"),
        ] {
            assert_eq!(id(key), hashed);
            assert!(!is_id(key) && is_id(hashed));
        }
    }

    #[test]
    fn documents_are_found_under_their_collections_and_ids_in_their_names() {
        let names = names();
        let lock = names.lock("payment:42");
        assert_eq!(lock, "projects/p/databases/(default)/documents/locks/payment:42");
        assert_eq!(names.id_of(&lock), Some("payment:42"));
        let fence = names.fence("payment:42").unwrap();
        assert_eq!(fence, "projects/p/databases/(default)/documents/fence_counters/fence:payment:42");
        assert_eq!(names.id_of(&fence), None);
    }
}
