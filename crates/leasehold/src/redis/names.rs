use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::backend::StorageKeys;
use crate::{Error, Key, LockId};

/// The longest name, and how much of it is kept free. Shared with other programs, so they never
/// change.
const LIMIT: usize = 1000;
const RESERVE: usize = 26;

/// What the channel of a lock's releases is called behind the name of the lock.
pub(super) const FREED_SUFFIX: &str = ":freed";

/// What the sets of held locks are called, where indexes have a lock id: those that are plain, and
/// those that several hold or somebody waits for.
pub(super) const HELD: &str = "held";
pub(super) const BUSY: &str = "busy";

/// What stands beside a lock that several hold or somebody waits for is called like the lock, a
/// character that no key contains, and a letter: who holds it by fence and by expiry, which slots
/// are taken, who waits in order and by the end of its lease. Lua reads the character as we do.
pub(super) const GRANTS: &str = "\\0g";
pub(super) const ENDS: &str = "\\0e";
pub(super) const SLOTS: &str = "\\0b";
pub(super) const LINE: &str = "\\0q";
pub(super) const LEASES: &str = "\\0u";

/// What the channels are called that tell somebody in line of its turn, behind the prefix.
pub(super) const TURN: &str = "turn:";

/// What the channel is called that tells of locks taken from their holders, behind the prefix.
pub(super) const TAKEN: &str = "taken";

/// What everything is called in the server: locks, indexes of lock ids, fence counters and
/// channels.
#[derive(Clone, Debug)]
pub(super) struct Names {
    keys: StorageKeys,
    /// What every name starts with: the prefix and a colon, or nothing.
    start: String,
    /// What a user's key would start with that got the name of a counter: reserved.
    counters: String,
}

impl Names {
    /// # Errors
    ///
    /// `InvalidArgument` if the prefix is too long, or could be taken for that of the fence
    /// counters.
    pub(super) fn new(prefix: &str) -> Result<Self, Error> {
        let prefix = prefix.trim_end_matches(':');
        if prefix.contains("fence:") || prefix.ends_with("fence") {
            return Err(Error::invalid(
                "the prefix contains `fence:` or ends in `fence`, which names the fence counters",
            )
            .with_hint("choose another prefix"));
        }
        if prefix.contains('\0') {
            return Err(Error::invalid("the prefix contains a NUL character"));
        }
        let keys = StorageKeys::new(prefix, LIMIT, RESERVE)?;
        let start = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        // Indexes are looked for by their plain name, also inside the server.
        if start.len() + "id:".len() + LockId::LEN + RESERVE > LIMIT {
            return Err(Error::invalid("the prefix is too long for this store").with_hint("choose a shorter prefix"));
        }
        Ok(Self { keys, counters: format!("fence:{start}"), start })
    }

    /// # Errors
    ///
    /// `InvalidArgument` if the key would get the name of an index, a counter or a set of held
    /// locks.
    pub(super) fn lock(&self, key: &Key) -> Result<String, Error> {
        let text = key.as_str();
        let index = text.strip_prefix("id:").is_some_and(|id| id == HELD || id == BUSY || id.parse::<LockId>().is_ok());
        if index || text.starts_with(&self.counters) {
            return Err(Error::invalid("the key has the form of a name that this store keeps for itself")
                .with_hint(
                    "keys must not be `id:held`, `id:busy`, `id:` and a lock id, nor start with `fence:`, the store's \
                     prefix and a colon",
                )
                .about_key());
        }
        self.keys.lock(key)
    }

    /// The counter of the lock named `lock`.
    pub(super) fn fence(&self, lock: &str) -> Result<String, Error> {
        self.keys.fence(lock)
    }

    /// The entry that leads from a lock id to its lock.
    pub(super) fn index(&self, id: &LockId) -> String {
        format!("{}{}", self.indexes(), id.expose())
    }

    /// What the names of indexes start with.
    pub(super) fn indexes(&self) -> String {
        format!("{}id:", self.start)
    }

    /// The set with the names of held locks, so that a listing need not look for them among all
    /// names.
    pub(super) fn held(&self) -> String {
        format!("{}{HELD}", self.indexes())
    }

    /// The channel that tells of the release of the lock named `lock`. The scripts make the same.
    pub(super) fn freed(lock: &str) -> String {
        format!("{lock}{FREED_SUFFIX}")
    }

    /// The channel that tells somebody in line of its turn.
    pub(super) fn turn(&self, id: &LockId) -> String {
        format!("{}{TURN}{}", self.start, Self::turn_of(id))
    }

    /// What that channel is called for a lock id, of which it must tell nothing: whoever listens
    /// could act as its owner.
    pub(super) fn turn_of(id: &LockId) -> String {
        URL_SAFE_NO_PAD.encode(&Sha256::digest(id.expose())[..16])
    }

    /// The channel that tells of locks taken from their holders.
    pub(super) fn taken(&self) -> String {
        format!("{}{TAKEN}", self.start)
    }

    /// The channel that tells of locks as they are granted.
    pub(super) fn granted(&self) -> String {
        format!("{}granted", self.start)
    }

    /// What every name starts with.
    pub(super) fn start(&self) -> &str {
        &self.start
    }

    /// A pattern that the names of all locks match whose keys start with `prefix`.
    pub(super) fn pattern(&self, prefix: &str) -> String {
        let prefix = if self.are_plain() { prefix } else { "" };
        format!("{}{}*", escape(&self.start), escape(prefix))
    }

    /// Whether few other names match the pattern of `prefix`. Not if fence counters do, or if names
    /// may be hashes.
    pub(super) fn pattern_is_narrow(&self, prefix: &str) -> bool {
        self.are_plain() && !self.counters.starts_with(prefix) && !prefix.starts_with(&self.counters)
    }

    /// Whether no name is a hash, which shows nothing of its key.
    fn are_plain(&self) -> bool {
        self.start.len() + Key::MAX_BYTES + RESERVE <= LIMIT
    }

    /// A pattern that all indexes match, of which there are as many as locks.
    pub(super) fn index_pattern(&self) -> String {
        format!("{}{}", escape(&self.indexes()), "?".repeat(LockId::LEN))
    }
}

/// `text` as a pattern that matches only itself.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn reserved_prefixes_and_keys_are_refused() {
        for prefix in ["fence", "my-fence", "a:fence:b", "fence:", "fence::", &"p".repeat(949)] {
            assert_eq!(Names::new(prefix).unwrap_err().code(), ErrorCode::InvalidArgument, "{prefix}");
        }
        let names = Names::new("app:").unwrap();
        for reserved in ["id:AAAAAAAAAAAAAAAAAAAAAA", "id:held", "id:busy", "fence:app:order", "fence:app:"] {
            assert_eq!(names.lock(&key(reserved)).unwrap_err().code(), ErrorCode::InvalidArgument, "{reserved}");
        }
        for ordinary in
            ["id:order", "id:AAAAAAAAAAAAAAAAAAAAA", "fence:order", "x:fence:app", "fence:app", "fence:apps:order"]
        {
            assert_eq!(names.lock(&key(ordinary)).unwrap(), format!("app:{ordinary}"));
        }
        assert!(Names::new("").unwrap().lock(&key("fence:anything")).is_err(), "without a prefix");
        assert!(Names::new(&"p".repeat(948)).unwrap().lock(&key("order")).is_ok());
    }

    #[test]
    fn names_are_those_of_the_shared_layout() {
        let names = Names::new("syncguard").unwrap();
        let id: LockId = "abcdefghijklmnopqrstuv".parse().unwrap();
        let lock = names.lock(&key("payment:123")).unwrap();
        assert_eq!(lock, "syncguard:payment:123");
        assert_eq!(names.fence(&lock).unwrap(), "syncguard:fence:syncguard:payment:123");
        assert_eq!(names.index(&id), "syncguard:id:abcdefghijklmnopqrstuv");
        assert_eq!(names.held(), "syncguard:id:held");
        let turn = names.turn(&id);
        assert!(turn.starts_with("syncguard:turn:") && !turn.contains(id.expose()), "{turn}");
        assert_eq!(turn.len(), "syncguard:turn:".len() + 22);
        assert_eq!(names.pattern("a*b"), "syncguard:a\\*b*");
        assert_eq!(names.index_pattern(), "syncguard:id:??????????????????????");
        for counters in ["", "f", "fence:", "fence:syncguard:order"] {
            assert!(!names.pattern_is_narrow(counters), "{counters}");
        }
        assert!(names.pattern_is_narrow("fences"));
        let long = Names::new(&"p".repeat(500)).unwrap();
        assert!(!long.pattern_is_narrow("a"));
        assert_eq!(long.pattern("a"), format!("{}:*", "p".repeat(500)), "hashed names show no key");
    }
}
