//! What goes over the pipes: one line of JSON for each message.

mod failure;
mod notes;
#[cfg(test)]
mod tests;
mod values;

use leasehold::backend::{Capabilities, Event};
use leasehold::{Error, Key, ListRequest, LockId, Ttl};
use serde::{Deserialize, Serialize};

pub(super) use failure::Failure;
pub(super) use values::Listed;

/// A message to the store.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    /// What the answer, and the events of a subscription, will carry.
    pub(super) id: u64,
    pub(super) call: Call,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Capabilities,
    Acquire(#[serde(with = "values::AcquireRequest")] leasehold::backend::AcquireRequest),
    Release(#[serde(with = "values::lock_id")] LockId),
    Extend(#[serde(with = "values::lock_id")] LockId, Ttl),
    IsLocked(Key),
    LookupKey(Key),
    LookupId(#[serde(with = "values::lock_id")] LockId),
    List(#[serde(with = "values::ListRequest")] ListRequest),
    /// Freed locks of this key, or all that are taken.
    Subscribe(Option<Key>),
    /// Ends the subscription that was asked for with the same id. Is not answered.
    Unsubscribe,
    ForceRelease(Key),
}

/// A message from the store.
#[derive(Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) id: u64,
    pub(super) said: Said,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Answer(Answer),
    Error(Failure),
    Event(#[serde(with = "values::Event")] Event),
    /// The store closed the subscription.
    Closed,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Capabilities(#[serde(with = "values::Capabilities")] Capabilities),
    Acquire(#[serde(with = "values::Acquire")] leasehold::backend::Acquire),
    Release(#[serde(with = "values::Release")] leasehold::backend::Release),
    Extend(#[serde(with = "values::Extend")] leasehold::backend::Extend),
    IsLocked(bool),
    Lookup(Option<Listed>),
    List(Vec<Listed>, Option<String>),
    Subscribed,
    ForceRelease(#[serde(with = "values::ForceRelease")] leasehold::backend::ForceRelease),
}

impl From<Result<Answer, Error>> for Said {
    fn from(outcome: Result<Answer, Error>) -> Self {
        match outcome {
            Ok(answer) => Said::Answer(answer),
            Err(error) => Said::Error(Failure::from(&error)),
        }
    }
}
