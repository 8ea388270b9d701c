//! A lock as a server has it, for stores whose server is open to other programs.

use serde_json::error::Category;

use crate::backend::{Mode, Record};
use crate::{Contention, Error, Fence, Holder, Key, LockId, Metadata, Timestamp};

/// A lock as it is stored. Other programs write it too, so nothing is taken for granted.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: String,
    pub(crate) lock_id: String,
    pub(crate) fence: String,
    pub(crate) acquired_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) holder: Option<Holder>,
    pub(crate) metadata: Metadata,
}

impl Stored {
    /// Whether somebody holds it.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_live(now)
    }

    pub(crate) fn has_id(&self, id: &LockId) -> bool {
        self.lock_id == id.expose()
    }

    /// The answer to somebody else who wants it at `now`.
    pub(crate) fn contention(&self, now: Timestamp) -> Contention {
        let contention = Contention::new(self.holder.clone(), self.acquired_at, self.expires_at, now);
        contention.with_fence(self.fence.parse().ok())
    }

    /// # Errors
    ///
    /// The store's own error, `not_a_lock`, if the key, the lock id or the fence is not one.
    pub(crate) fn into_record(self, not_a_lock: fn() -> Error) -> Result<Record, Error> {
        let unusable = |source: Error| not_a_lock().with_source(source);
        let fence = self.fence.parse::<Fence>().and_then(|fence| Fence::new(fence.get()));
        Ok(Record {
            key: Key::new(&self.key).map_err(unusable)?,
            lock_id: self.lock_id.parse().map_err(unusable)?,
            fence: fence.map_err(unusable)?,
            acquired_at: self.acquired_at,
            expires_at: self.expires_at,
            holder: self.holder,
            metadata: self.metadata,
            mode: Mode::Exclusive,
            slot: None,
        })
    }
}

/// What is wrong with JSON that another program may have written, without any of it.
pub(crate) fn unreadable(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Syntax | Category::Io => "it is not JSON",
        Category::Eof => "it breaks off",
        Category::Data => "a field is missing, is there twice, or is of another type",
    };
    format!("{what}, at line {} column {}", error.line(), error.column())
}

/// A name that was left with a lock, if it is one.
pub(crate) fn holder(name: Option<&str>) -> Option<Holder> {
    name.and_then(|name| Holder::new(name).ok())
}
