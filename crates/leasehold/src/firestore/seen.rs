//! What a change of a key's document means to those who wait for it.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::known::Known;
use crate::remote::notification::freed_topic;
use crate::{LockId, Timestamp};

/// What topics of turns start with.
const TURN: &str = "turn:";

/// The topic of an id whose turn it is in the line for the key of a document.
pub(super) fn turn_topic(id: &LockId, document: &str) -> String {
    format!("{TURN}{}{document}", id.expose())
}

/// A key that somebody waits for, by the id of its document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) document: String,
    /// Whose turn in the line it has to be, if it is not enough that the key is free.
    turn_of: Option<String>,
}

impl Awaited {
    /// What a topic is about, if it is about a key.
    pub(super) fn of(topic: &str) -> Option<Self> {
        if let Some(document) = topic.strip_prefix(&freed_topic("")) {
            return Some(Self { document: document.to_owned(), turn_of: None });
        }
        let (id, document) = topic.strip_prefix(TURN)?.split_at_checked(LockId::LEN)?;
        Some(Self { document: document.to_owned(), turn_of: Some(id.to_owned()) })
    }

    /// Whether one who waits for this is to be told that a document changed, which was `seen` and
    /// is `now`. The first in line is told when it is called, and nobody else. If there is no line,
    /// all are told of a lock that was given back.
    pub(super) fn is_news(&self, seen: Option<&Seen>, now: &Seen) -> bool {
        match &now.called {
            _ if now.waiting == 0 => seen.is_some_and(|seen| now.holders < seen.holders),
            Some((id, _)) if self.turn_of.as_deref() == Some(id.expose()) => {
                seen.is_none_or(|seen| seen.called != now.called)
            }
            _ => false,
        }
    }
}

/// What was seen of a key last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    holders: usize,
    waiting: usize,
    /// Who was called, and until when it has to ask: one who is called again has another time.
    called: Option<(LockId, Timestamp)>,
}

impl Seen {
    /// Nothing, if it is not the document of a key.
    pub(super) fn of(document: &api::Document) -> Option<Self> {
        let state = Known::of(document).ok()?.state;
        let called = state.line.iter().find(|place| place.called);
        Some(Self {
            holders: state.grants.len(),
            waiting: state.line.len(),
            called: called.map(|place| (place.waiter.lock_id, place.waiter.until)),
        })
    }
}
