//! What documents that change say to those who listen.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::known::Known;
use super::push::{ListenConnection, Target};
use super::record::{self, Taken};
use super::seen::{Awaited, Seen};
use crate::Key;
use crate::backend::{Event, Record};
use crate::remote::notification::{GRANTED_TOPIC, TAKEN_TOPIC};
use crate::sync::lock;

impl ListenConnection {
    pub(super) fn document_changed(&mut self, change: &api::DocumentChange) {
        let Some(document) = &change.document else { return };
        let topics = change.target_ids.iter().filter_map(|id| self.targets.get(id));
        let is_new = |wanted: &str| {
            let mut topics = topics.clone();
            topics.find(|target| target.topic == wanted).map(Target::has_news)
        };
        let (taken, granted) = (is_new(TAKEN_TOPIC), is_new(GRANTED_TOPIC));
        if let Some(is_new) = taken {
            self.taken(document, is_new);
        }
        if let Some(is_new) = granted {
            self.granted(document, is_new);
        }
        self.changed(document, &change.target_ids);
    }

    /// A lock was granted or extended, or who waits for it has changed.
    fn granted(&mut self, document: &api::Document, is_new: bool) {
        let Ok(Known { state, .. }) = Known::of(document) else { return };
        let Some(last) = state.grants.iter().map(|grant| grant.fence).max() else { return };
        let known = self.granted.put(document.name.clone(), last);
        // With the first new grant of a key, the server also tells of those that are older than all
        // it was asked for.
        let since = self.source.since;
        let is_news = |grant: &Record| grant.acquired_at > since && known.is_none_or(|known| grant.fence > known);
        for grant in state.grants.into_iter().filter(|grant| is_new && is_news(grant)) {
            let Record { key, fence, holder, .. } = grant;
            self.tell(GRANTED_TOPIC, Event::Granted { key, fence, holder });
        }
    }

    /// A counter changed. Later grants change it as well, while it still tells of the same locks.
    fn taken(&mut self, document: &api::Document, is_new: bool) {
        let Some(Taken { key, fences, how, .. }) = record::taken(document) else { return };
        let Ok(key) = Key::new(&key) else { return };
        let known = lock(&self.source.told).put(document.name.clone(), fences.clone()).unwrap_or_default();
        for fence in fences.into_iter().filter(|fence| is_new && !known.contains(fence)) {
            self.tell(TAKEN_TOPIC, Event::Taken { key: key.clone(), fence, how });
        }
    }

    /// The document of a key changed. Each target has its own view of it: what one of them is told
    /// for the first time is news to the others.
    fn changed(&mut self, document: &api::Document, targets: &[i32]) {
        let Some(now) = Seen::of(document) else { return };
        let mut told = Vec::new();
        for (_, target) in self.targets.iter_mut().filter(|(id, _)| targets.contains(id)) {
            let Some(awaited) = Awaited::of(&target.topic) else { continue };
            let seen = target.seen.replace(now.clone());
            if target.has_news() && awaited.is_news(seen.as_ref(), &now) {
                told.push(target.topic.clone());
            }
        }
        told.into_iter().for_each(|topic| self.tell(topic, Event::Freed));
    }

    /// The document of a key was deleted: nobody holds it or waits for it. What the server says of
    /// one that was not there when somebody began to listen is no news.
    pub(super) fn deleted(&mut self, name: &str) {
        self.granted.pop(name);
        let Some(document) = self.source.names.id_of(name) else { return };
        let mut told = Vec::new();
        for target in self.targets.values_mut() {
            if Awaited::of(&target.topic).is_some_and(|awaited| awaited.document == document) {
                target.seen = None;
                told.extend(target.has_news().then(|| target.topic.clone()));
            }
        }
        told.into_iter().for_each(|topic| self.tell(topic, Event::Freed));
    }
}
