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

    /// Takes note of a new grant's fence.
    pub(super) fn check(&self, key: &Key, fence: Fence) -> Result<(), Error> {
        let mut seen = lock(&self.0);
        if let Some(highest) = seen.get_mut(key) {
            if fence <= *highest {
                return Err(Error::new(
                    ErrorCode::Internal,
                    format!("the store granted fence {fence} after it had granted {highest}"),
                )
                .with_hint(
                    "the store lost data or its clock went back; locks on it are not safe until that is mended",
                ));
            }
            *highest = fence;
        } else {
            seen.put(key.clone(), fence);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_that_is_not_higher_is_refused_and_others_pass() {
        let seen = HighWater::new();
        let (a, b) = (Key::new("a").unwrap(), Key::new("b").unwrap());
        let fence = |n| Fence::new(n).unwrap();
        seen.check(&a, fence(5)).unwrap();
        seen.check(&b, fence(1)).unwrap();
        seen.check(&a, fence(6)).unwrap();
        assert_eq!(seen.check(&a, fence(6)).unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(seen.check(&a, fence(2)).unwrap_err().code(), ErrorCode::Internal);
        seen.check(&a, fence(7)).unwrap();
    }

    #[test]
    fn memory_is_bounded() {
        let seen = HighWater::new();
        for n in 0..10_000u64 {
            seen.check(&Key::new(&format!("key-{n}")).unwrap(), Fence::new(n + 1).unwrap()).unwrap();
        }
        assert_eq!(lock(&seen.0).len(), REMEMBERED_KEYS.get());
    }
}
