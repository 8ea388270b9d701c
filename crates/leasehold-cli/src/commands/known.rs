//! What `watch` knows of the locks that are held, and what has changed since.

use std::collections::BTreeMap;

use leasehold::{Fence, Holder, Key, LockInfo, Locked, Mode};

/// A lock that we saw, or of which we only heard.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Lock(Box<Locked>),
    Grant { key: Key, fence: Fence, holder: Option<Holder> },
}

impl Seen {
    pub(super) fn key(&self) -> &Key {
        match self {
            Seen::Lock(locked) => &locked.key,
            Seen::Grant { key, .. } => key,
        }
    }

    pub(super) fn fence(&self) -> Fence {
        match self {
            Seen::Lock(locked) => locked.info.fence,
            Seen::Grant { fence, .. } => *fence,
        }
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        match self {
            Seen::Lock(locked) => locked.info.holder.as_ref(),
            Seen::Grant { holder, .. } => holder.as_ref(),
        }
    }

    /// Whether others may hold its key too, as far as we know.
    fn is_together(&self) -> bool {
        matches!(self, Seen::Lock(locked) if locked.info.mode != Mode::Exclusive)
    }
}

/// A lock that was `freed` or is `held`.
pub(super) type Change = (&'static str, Seen);

/// The locks that are held as far as we know: those of each key by their fences, as several may
/// hold it.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, BTreeMap<Fence, Seen>>);

impl Known {
    pub(super) fn contains(&self, key: &Key, fence: Fence) -> bool {
        self.0.get(key.as_str()).is_some_and(|of_key| of_key.contains_key(&fence))
    }

    fn contains_seen(&self, seen: &Seen) -> bool {
        self.contains(seen.key(), seen.fence())
    }

    fn all(&self) -> impl Iterator<Item = &Seen> {
        self.0.values().flat_map(BTreeMap::values)
    }

    fn insert(&mut self, seen: Seen) {
        self.0.entry(seen.key().as_str().to_owned()).or_default().insert(seen.fence(), seen);
    }

    /// Each lock that was taken, given back, or taken anew since the last look.
    pub(super) fn looked(&mut self, held: &[Locked]) -> Vec<Change> {
        let mut now = Known::default();
        held.iter().for_each(|locked| now.insert(Seen::Lock(Box::new(locked.clone()))));
        let freed = self.all().filter(|seen| !now.contains_seen(seen)).map(|seen| ("freed", seen.clone()));
        let new = now.all().filter(|seen| !self.contains_seen(seen)).map(|seen| ("held", seen.clone()));
        let changes = freed.chain(new).collect();
        *self = now;
        changes
    }

    /// We heard of a grant, and have looked who holds its key since, unless we could not.
    pub(super) fn granted(
        &mut self,
        key: Key,
        fence: Fence,
        holder: Option<Holder>,
        holders: Option<&[LockInfo]>,
    ) -> Vec<Change> {
        let name = key.as_str().to_owned();
        let found = holders.and_then(|holders| holders.iter().find(|info| info.fence == fence));
        let seen = match found {
            Some(info) => Seen::Lock(Box::new(Locked::new(key, info.clone()))),
            None => Seen::Grant { key, fence, holder },
        };
        let of_key = self.0.entry(name).or_default();
        // Of a key that nobody is known to share, a grant ends when the next one is made.
        let is_shared = of_key.values().any(Seen::is_together);
        let is_over = |other: Fence| match holders {
            Some(holders) => !holders.iter().any(|info| info.fence == other),
            None => !is_shared && other < fence,
        };
        let is_followed = match holders {
            Some(holders) => found.is_none() && holders.iter().any(|info| info.fence > fence),
            None => !is_shared && of_key.keys().any(|other| *other > fence),
        };
        let mut changes: Vec<Change> = Vec::new();
        of_key.retain(|other, seen| {
            let is_over = is_over(*other);
            changes.extend(is_over.then(|| ("freed", seen.clone())));
            !is_over
        });
        changes.push(("held", seen.clone()));
        if is_followed {
            // It was gone before we saw the one that came after it.
            changes.push(("freed", seen));
        } else {
            of_key.insert(fence, seen);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Locks;
    use leasehold::memory::Memory;

    use super::*;

    fn told(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|(what, seen)| format!("{what} {}", seen.holder().map_or("-", Holder::as_str))).collect()
    }

    fn heard(known: &mut Known, number: u64, holder: &str, holders: Option<&[LockInfo]>) -> Vec<String> {
        let (key, holder) = (Key::new("k").unwrap(), Holder::new(holder).unwrap());
        told(&known.granted(key, Fence::new(number).unwrap(), Some(holder), holders))
    }

    #[test]
    fn of_locks_that_nobody_shares_each_grant_ends_the_one_before_it() {
        let mut known = Known::default();
        assert_eq!(heard(&mut known, 1, "a", None), ["held a"]);
        assert_eq!(heard(&mut known, 3, "c", Some(&[])), ["freed a", "held c"]);
        assert_eq!(heard(&mut known, 2, "b", None), ["held b", "freed b"]);
        assert_eq!(heard(&mut known, 4, "d", None), ["freed c", "held d"]);
        assert_eq!(told(&known.looked(&[])), ["freed d"]);
    }

    #[tokio::test]
    async fn readers_come_and_go_without_ending_one_another() {
        let locks = Locks::new(Memory::new());
        let mut known = Known::default();
        let a = locks.shared("k").holder("a").acquire().await.unwrap();
        let holders = locks.holders("k").await.unwrap();
        assert_eq!(heard(&mut known, a.fence().get(), "a", Some(&holders)), ["held a"]);
        let b = locks.shared("k").holder("b").acquire().await.unwrap();
        assert_eq!(heard(&mut known, b.fence().get(), "b", None), ["held b"], "although nobody could look");
        let c = locks.shared("k").holder("c").acquire().await.unwrap();
        let fence = c.fence().get();
        a.release().await.unwrap();
        let holders = locks.holders("k").await.unwrap();
        assert_eq!(heard(&mut known, fence, "c", Some(&holders)), ["freed a", "held c"]);
        b.release().await.unwrap();
        let page = locks.list("").await.unwrap();
        assert_eq!(told(&known.looked(&page.locks)), ["freed b"]);
        assert_eq!(told(&known.looked(&page.locks)), [""; 0]);
    }
}
