use std::collections::BTreeMap;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_response::ResponseType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    Document, DocumentChange, DocumentDelete, DocumentRemove, ListenResponse,
};

use crate::clock::{Micros, timestamp};

/// What the targets of a stream have to be told about documents, one message for each.
#[derive(Debug, Default)]
pub(super) struct Deltas(BTreeMap<String, Delta>);

#[derive(Debug, Default)]
struct Delta {
    document: Option<Arc<Document>>,
    shown: Vec<i32>,
    removed: Vec<i32>,
}

impl Deltas {
    /// The target shows the document from now on, as it is.
    pub(super) fn show(&mut self, target: i32, document: &Arc<Document>) {
        let delta = self.0.entry(document.name.clone()).or_default();
        delta.document = Some(Arc::clone(document));
        delta.shown.push(target);
    }

    /// The target does not show the document, which may exist all the same.
    pub(super) fn hide(&mut self, target: i32, name: &str, document: Option<&Arc<Document>>) {
        let delta = self.0.entry(name.to_owned()).or_default();
        delta.document = document.cloned();
        delta.removed.push(target);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The documents that Google would charge for: those that were sent, and those that fell out of
    /// a query because they changed.
    pub(super) fn reads(&self) -> usize {
        self.0.values().filter(|delta| delta.document.is_some()).count()
    }

    pub(super) fn into_messages(self, time: Micros) -> impl Iterator<Item = ListenResponse> {
        let read_time = Some(timestamp(time));
        self.0.into_iter().map(move |(document, delta)| {
            let Delta { document: content, shown: target_ids, removed: removed_target_ids } = delta;
            let response_type = match content {
                None => ResponseType::DocumentDelete(DocumentDelete { document, removed_target_ids, read_time }),
                Some(_) if target_ids.is_empty() => {
                    ResponseType::DocumentRemove(DocumentRemove { document, removed_target_ids, read_time })
                }
                Some(content) => {
                    let document = Some(Document::clone(&content));
                    ResponseType::DocumentChange(DocumentChange { document, target_ids, removed_target_ids })
                }
            };
            ListenResponse { response_type: Some(response_type) }
        })
    }
}
