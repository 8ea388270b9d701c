//! What goes over the pipes: one line of JSON for each message.

mod failure;
mod notes;
#[cfg(test)]
mod tests;
mod values;

use leasehold::backend::{Capabilities, Event, Topic};
use leasehold::{Error, Fence, Key, ListRequest, LockId, Ttl};
use serde::{Deserialize, Serialize};

pub(super) use failure::Failure;
pub(super) use values::{Listed, Waiting};

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
    AcquireAll(Vec<Wanted>),
    Release(#[serde(with = "values::lock_id")] LockId),
    Extend(#[serde(with = "values::lock_id")] LockId, Ttl),
    IsLocked(Key),
    LookupKey(Key),
    LookupId(#[serde(with = "values::lock_id")] LockId),
    List(#[serde(with = "values::ListRequest")] ListRequest),
    Inspect(Key),
    Subscribe(About),
    /// Ends the subscription that was asked for with the same id. Is not answered.
    Unsubscribe,
    ForceRelease(Key, Option<Fence>),
}

/// One of the requests for several locks.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Wanted(#[serde(with = "values::AcquireRequest")] pub(super) leasehold::backend::AcquireRequest);

/// What a subscription is about: a [`Topic`] that owns its names.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum About {
    Freed(Key),
    Turn(Key, #[serde(with = "values::lock_id")] LockId),
    Taken,
    Granted,
}

impl About {
    /// Nothing if the topic is one that is not known here.
    pub(super) fn of(topic: Topic<'_>) -> Option<Self> {
        Some(match topic {
            Topic::Freed(key) => About::Freed(key.clone()),
            Topic::Turn(key, id) => About::Turn(key.clone(), *id),
            Topic::Taken => About::Taken,
            Topic::Granted => About::Granted,
            _ => return None,
        })
    }

    pub(super) fn topic(&self) -> Topic<'_> {
        match self {
            About::Freed(key) => Topic::Freed(key),
            About::Turn(key, id) => Topic::Turn(key, id),
            About::Taken => Topic::Taken,
            About::Granted => Topic::Granted,
        }
    }
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
    AcquireAll(#[serde(with = "values::AcquireAll")] leasehold::backend::AcquireAll),
    Release(#[serde(with = "values::Release")] leasehold::backend::Release),
    Extend(#[serde(with = "values::Extend")] leasehold::backend::Extend),
    IsLocked(bool),
    Lookup(Option<Listed>),
    /// Who holds it, and who waits.
    Inspect(Vec<Listed>, Vec<Waiting>),
    List {
        records: Vec<Listed>,
        /// A list, because a key may be no name in JSON.
        waiting: Vec<(Key, u32)>,
        next: Option<String>,
    },
    Subscribed,
    ForceRelease(Vec<Listed>),
}

impl From<Result<Answer, Error>> for Said {
    fn from(outcome: Result<Answer, Error>) -> Self {
        match outcome {
            Ok(answer) => Said::Answer(answer),
            Err(error) => Said::Error(Failure::from(&error)),
        }
    }
}
