use leasehold::{Timestamp, Ttl};

/// When something happened by the store's clock: at some moment between the two, both included.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Not before.
    pub earliest: Timestamp,
    /// Not after.
    pub latest: Timestamp,
}

impl Interval {
    pub(super) fn contains(self, at: Timestamp) -> bool {
        self.span().contains(at.as_millis())
    }

    pub(super) fn allows_expiry(self, expires_at: Timestamp, ttl: Ttl) -> bool {
        self.span().plus(ttl.as_millis()).contains(expires_at.as_millis())
    }

    pub(super) fn span(self) -> Span {
        Span { from: self.earliest.as_millis(), to: self.latest.as_millis() }
    }
}

/// Some millisecond between two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    pub(super) fn only(at: Timestamp) -> Self {
        Self { from: at.as_millis(), to: at.as_millis() }
    }

    pub(super) fn contains(self, millis: u64) -> bool {
        (self.from..=self.to).contains(&millis)
    }

    pub(super) fn plus(self, millis: u64) -> Self {
        Self { from: self.from + millis, to: self.to + millis }
    }

    pub(super) fn minus(self, millis: u64) -> Self {
        Self { from: self.from.saturating_sub(millis), to: self.to.saturating_sub(millis) }
    }

    pub(super) fn min(self, other: Self) -> Self {
        Self { from: self.from.min(other.from), to: self.to.min(other.to) }
    }

    /// Its parts between the edges that lie in it.
    pub(super) fn parts(self, edges: impl IntoIterator<Item = u64>) -> Vec<Span> {
        let mut starts: Vec<u64> = edges.into_iter().filter(|edge| *edge > self.from && *edge <= self.to).collect();
        starts.push(self.from);
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).map(|start| start - 1).chain([self.to]);
        starts.iter().zip(ends).map(|(from, to)| Span { from: *from, to }).collect()
    }
}
