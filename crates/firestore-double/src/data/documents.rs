use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Document;

use super::history::{Change, Commit, History};
use crate::clock::Micros;

/// All documents by name, and what happened to them of late.
#[derive(Debug)]
pub(crate) struct Documents {
    current: BTreeMap<String, Arc<Document>>,
    history: History,
}

impl Documents {
    /// None yet. What happened before `time` is not known.
    pub(crate) fn new(time: Micros) -> Self {
        Self { current: BTreeMap::new(), history: History::new(time) }
    }

    pub(crate) fn current(&self) -> &BTreeMap<String, Arc<Document>> {
        &self.current
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Document>> {
        self.current.get(name)
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Makes the changes, and remembers them.
    pub(crate) fn apply(&mut self, time: Micros, changes: Vec<Change>) {
        for change in &changes {
            put(&mut self.current, &change.name, change.after.clone());
        }
        self.history.push(Commit { time, changes });
    }

    /// All documents as they were at a time that the history reaches back to.
    pub(crate) fn at(&self, time: Micros) -> Option<BTreeMap<String, Arc<Document>>> {
        let mut documents = self.current.clone();
        for commit in self.history.after(time)?.rev() {
            for change in &commit.changes {
                put(&mut documents, &change.name, change.before.clone());
            }
        }
        Some(documents)
    }
}

fn put(documents: &mut BTreeMap<String, Arc<Document>>, name: &str, document: Option<Arc<Document>>) {
    match document {
        Some(document) => documents.insert(name.to_owned(), document),
        None => documents.remove(name),
    };
}

/// The documents of a collection, and those of collections below it.
pub(crate) fn children<'a>(
    documents: &'a BTreeMap<String, Arc<Document>>,
    collection: &str,
) -> impl Iterator<Item = &'a Arc<Document>> {
    // Nothing is between a slash and the character after it.
    let bounds = (Bound::Excluded(format!("{collection}/")), Bound::Excluded(format!("{collection}0")));
    documents.range(bounds).map(|(_, document)| document)
}
