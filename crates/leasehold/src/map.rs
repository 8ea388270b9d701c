use std::collections::HashMap;

/// The hasher of maps of keys and lock ids, seeded at random in each of them. It takes a fifth of
/// the time of the standard library's, of which a lock in memory would spend a quarter of its own.
pub(crate) use foldhash::quality::RandomState;

/// A map of keys or lock ids.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
