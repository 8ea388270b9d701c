use std::num::NonZeroUsize;
use std::sync::Mutex;

use lru::LruCache;

use crate::sync::lock;
use crate::{Error, ErrorCode, Fence, Key};

/// Enough for the keys a busy process uses within a lease, small enough to forget about.
const REMEMBERED_KEYS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The highest fence this process has seen for each of the keys it used last. A store whose fences
/// go back, because it was restored from a backup or its clock was set back, is caught here instead
/// of at the protected resource.
#[derive(Debug)]
pub(super) struct HighWater(Mutex<LruCache<Key, Fence>>);

impl HighWater {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED_KEYS)))
    }

    /// The highest fence seen so far. A grant that is asked for from now on has a higher one.
    ///
    /// It must be read before the request is sent: two grants of one key may be answered in the
    /// other order.
    pub(super) fn mark(&self, key: &Key) -> Option<Fence> {
        lock(&self.0).peek(key).copied()
    }

    /// Takes note of a new grant's fence, which was asked for when the highest one was `mark`.
    /// Tells whether it is the highest now: if not, whoever has a higher one may have taken the
    /// lock from it.
    pub(super) fn check(&self, key: &Key, mark: Option<Fence>, fence: Fence) -> Result<bool, Error> {
        if let Some(highest) = mark.filter(|mark| fence <= *mark) {
            return Err(Error::new(
                ErrorCode::Internal,
                format!("the store granted fence {fence} after it had granted {highest}"),
            )
            .with_hint("the store lost data or its clock went back; locks on it are not safe until that is mended"));
        }
        let mut seen = lock(&self.0);
        if let Some(highest) = seen.get_mut(key) {
            *highest = fence.max(*highest);
            return Ok(*highest == fence);
        }
        seen.put(key.clone(), fence);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    /// A grant that is answered before anything else is asked for.
    fn grant(seen: &HighWater, name: &str, number: u64) -> Result<bool, Error> {
        let key = key(name);
        seen.check(&key, seen.mark(&key), fence(number))
    }

    #[test]
    fn a_fence_that_is_not_higher_is_refused_and_others_pass() {
        let seen = HighWater::new();
        grant(&seen, "a", 5).unwrap();
        grant(&seen, "b", 1).unwrap();
        grant(&seen, "a", 6).unwrap();
        assert_eq!(grant(&seen, "a", 6).unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(grant(&seen, "a", 2).unwrap_err().code(), ErrorCode::Internal);
        grant(&seen, "a", 7).unwrap();
    }

    #[test]
    fn grants_that_were_asked_for_together_may_be_answered_in_any_order() {
        let seen = HighWater::new();
        grant(&seen, "a", 5).unwrap();
        let mark = seen.mark(&key("a"));
        assert!(seen.check(&key("a"), mark, fence(8)).unwrap());
        assert!(!seen.check(&key("a"), mark, fence(7)).unwrap(), "somebody was granted the lock after it");
        assert_eq!(seen.check(&key("a"), mark, fence(5)).unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(grant(&seen, "a", 8).unwrap_err().code(), ErrorCode::Internal, "8 stays the highest");
    }

    #[test]
    fn memory_is_bounded() {
        let seen = HighWater::new();
        for n in 0..10_000u64 {
            grant(&seen, &format!("key-{n}"), n + 1).unwrap();
        }
        assert_eq!(lock(&seen.0).len(), REMEMBERED_KEYS.get());
    }
}
