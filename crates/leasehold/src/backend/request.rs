use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Line, Mode, Record};
use crate::key::nfc;
use crate::{Error, Fence, Holder, Key, LockId, Metadata, Operation, Timestamp, Ttl};

/// What an acquire asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// What to lock.
    pub key: Key,
    /// The id the lock will have, made by the client.
    pub lock_id: LockId,
    /// How long the grant lasts unless extended.
    pub ttl: Ttl,
    /// Who asks.
    pub holder: Holder,
    /// Notes to store with the lock.
    pub metadata: Metadata,
    /// When the lock may be taken from its present holder.
    pub steal: Steal,
    /// How it wants to hold the lock.
    pub mode: Mode,
    /// What it does about those who wait.
    pub line: Line,
}

impl AcquireRequest {
    /// A request for an exclusive lock with the default holder, no notes and no stealing, which
    /// ignores the line.
    pub fn new(key: Key, lock_id: LockId, ttl: Ttl) -> Self {
        Self {
            key,
            lock_id,
            ttl,
            holder: Holder::default(),
            metadata: Metadata::default(),
            steal: Steal::NEVER,
            mode: Mode::Exclusive,
            line: Line::Ignore,
        }
    }

    /// How to hold the lock.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What to do about those who wait.
    #[must_use]
    pub fn with_line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Whether a store that knows neither lines nor modes can carry it out.
    pub fn is_plain(&self) -> bool {
        self.mode == Mode::Exclusive && self.line == Line::Ignore
    }

    /// What such a store says to other requests.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if it is not
    /// [plain](AcquireRequest::is_plain).
    pub fn check_plain(&self) -> Result<(), Error> {
        if self.is_plain() {
            return Ok(());
        }
        Err(Error::invalid("this store has neither lines nor shared locks nor permits").during(Operation::Acquire))
    }

    /// What to lock.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// The id the lock will have.
    #[must_use]
    pub fn with_lock_id(mut self, lock_id: LockId) -> Self {
        self.lock_id = lock_id;
        self
    }

    /// How long the grant lasts unless extended.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// Who asks.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.holder = holder;
        self
    }

    /// Notes to store with the lock.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// When the lock may be taken from its present holder.
    #[must_use]
    pub fn with_steal(mut self, steal: Steal) -> Self {
        self.steal = steal;
        self
    }
}

/// When a lock may be taken from whoever holds it. Never, by default. The store decides, inside the
/// atomic acquire.
///
/// A steal breaks mutual exclusion for as long as the victim goes on working: the victim is told at
/// once, but only a check of the [fence](crate::Fence) at the protected resource makes it harmless.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Steal;
///
/// let steal = Steal::NEVER.with_same_holder().with_held_longer_than(Duration::from_secs(3600));
/// assert!(steal.is_possible());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steal {
    same_holder: bool,
    held_longer_than: Option<Duration>,
    fence: Option<Fence>,
}

impl Steal {
    /// No stealing.
    pub const NEVER: Steal = Steal { same_holder: false, held_longer_than: None, fence: None };

    /// Take the lock if its recorded holder has the same name as we: we crashed and came back.
    #[must_use]
    pub const fn with_same_holder(mut self) -> Self {
        self.same_holder = true;
        self
    }

    /// Take the lock if it has been held, without a break, for longer than `time`: the holder is
    /// stuck.
    ///
    /// The store's clock tells how long that is. Whoever waits for the lock through
    /// [`Locks`](crate::Locks) counts as well, by its own clock: it knows a grant again by its
    /// fence, and what it saw for longer than `time` is stuck, also if the store's clock was set
    /// back.
    #[must_use]
    pub const fn with_held_longer_than(mut self, time: Duration) -> Self {
        self.held_longer_than = Some(time);
        self
    }

    /// Take the lock if this is the fence of the grant that holds it: whoever asks knows that this
    /// very grant is to end. Any later grant of the key has another fence, and is left alone.
    #[must_use]
    pub const fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Whether any stealing is allowed.
    pub const fn is_possible(self) -> bool {
        self.same_holder || self.held_longer_than.is_some() || self.fence.is_some()
    }

    /// Whether a holder's name is enough.
    pub const fn same_holder(self) -> bool {
        self.same_holder
    }

    /// The time after which any holder counts as stuck.
    pub const fn held_longer_than(self) -> Option<Duration> {
        self.held_longer_than
    }

    /// The grant that may be taken, whoever has it.
    pub const fn fence(self) -> Option<Fence> {
        self.fence
    }

    /// The rule that every store applies: may `thief` take the lock that is `held`, at `now`?
    pub fn allows(self, thief: &Holder, held: &Record, now: Timestamp) -> bool {
        let held_for = now.as_millis().saturating_sub(held.acquired_at.as_millis());
        (self.same_holder && held.holder.as_ref() == Some(thief))
            || self.held_longer_than.is_some_and(|limit| u128::from(held_for) > limit.as_millis())
            || self.fence == Some(held.fence)
    }
}

/// What a lookup goes by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LookupBy<'a> {
    /// The lock that is held on this key.
    Key(&'a Key),
    /// The lock that has this id.
    Id(&'a LockId),
}

/// What a subscription is about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Topic<'a> {
    /// The lock of this key may be free: [`Event::Freed`](super::Event::Freed).
    Freed(&'a Key),
    /// It may be the turn of this lock id in the line of this key:
    /// [`Event::Freed`](super::Event::Freed). Also if the lock was freed by a program that knows no
    /// lines.
    Turn(&'a Key, &'a LockId),
    /// Locks, of whatever key, that were taken from their holders:
    /// [`Event::Taken`](super::Event::Taken).
    Taken,
    /// Locks, of whatever key, as they are granted: [`Event::Granted`](super::Event::Granted). For
    /// those who watch.
    Granted,
}

impl Topic<'_> {
    /// How many events a subscriber may leave unread before it is told that it missed some.
    pub fn backlog(&self) -> usize {
        match self {
            // One unread event says all there is to say: look again.
            Topic::Freed(_) | Topic::Turn(..) => 1,
            Topic::Taken | Topic::Granted => 1024,
        }
    }
}

/// Which locks to list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    prefix: Arc<str>,
    page_size: usize,
    cursor: Option<String>,
}

impl ListRequest {
    /// The most records on one page.
    pub const MAX_PAGE_SIZE: usize = 1000;

    /// The first page, of up to 100 records, of the locks whose key starts with `prefix` (all of
    /// them if it is empty).
    pub fn new(prefix: impl AsRef<str>) -> Self {
        Self { prefix: nfc(prefix.as_ref()), page_size: 100, cursor: None }
    }

    /// The most records wanted, between 1 and [`MAX_PAGE_SIZE`](ListRequest::MAX_PAGE_SIZE).
    #[must_use]
    pub fn with_page_size(mut self, records: usize) -> Self {
        self.page_size = records.clamp(1, Self::MAX_PAGE_SIZE);
        self
    }

    /// Goes on where an earlier page ended: its [`next`](super::ListPage::next).
    #[must_use]
    pub fn with_cursor(mut self, cursor: impl Into<String>) -> Self {
        self.cursor = Some(cursor.into());
        self
    }

    /// The start of the keys wanted, in NFC.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The most records wanted.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Where an earlier page ended, in words that only the same store can read.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

impl<T: AsRef<str>> From<T> for ListRequest {
    fn from(prefix: T) -> Self {
        Self::new(prefix)
    }
}

impl From<&ListRequest> for ListRequest {
    fn from(request: &ListRequest) -> Self {
        request.clone()
    }
}
