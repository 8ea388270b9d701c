use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Document;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::TargetType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::query_target::QueryType;
use prost_types::Timestamp;
use tonic::Status;

use super::delta::Deltas;
use crate::data::history::Change;
use crate::data::query::Query;
use crate::name::Database;

/// Something that is listened to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) id: i32,
    pub(super) scope: Scope,
    /// The documents that the client has been told of, and when they were changed last.
    shown: BTreeMap<String, Option<Timestamp>>,
}

/// Which documents are listened to.
#[derive(Debug)]
pub(super) enum Scope {
    Documents(BTreeSet<String>),
    Query(Box<Query>),
}

impl Scope {
    pub(super) fn parse(database: &Database, target: Option<TargetType>) -> Result<Self, Status> {
        match target {
            Some(TargetType::Documents(target)) => {
                target.documents.iter().try_for_each(|name| database.check_document(name))?;
                Ok(Self::Documents(target.documents.into_iter().collect()))
            }
            Some(TargetType::Query(target)) => {
                database.check_parent(&target.parent)?;
                let Some(QueryType::StructuredQuery(query)) = target.query_type else {
                    return Err(Status::invalid_argument("There is no query."));
                };
                Ok(Self::Query(Box::new(Query::parse(&target.parent, query)?)))
            }
            None => Err(Status::invalid_argument("There is no target.")),
        }
    }

    /// The documents, as they are among all those.
    fn select(&self, documents: &BTreeMap<String, Arc<Document>>) -> Vec<Arc<Document>> {
        match self {
            Self::Documents(names) => names.iter().filter_map(|name| documents.get(name)).cloned().collect(),
            Self::Query(query) => query.run(documents).documents,
        }
    }
}

impl Target {
    pub(super) fn new(id: i32, scope: Scope) -> Self {
        Self { id, scope, shown: BTreeMap::new() }
    }

    /// Takes the client for having seen these documents.
    pub(super) fn assume(&mut self, documents: &BTreeMap<String, Arc<Document>>) {
        let selected = self.scope.select(documents).into_iter();
        self.shown = selected.map(|document| (document.name.clone(), document.update_time)).collect();
    }

    /// Takes the client for having seen nothing.
    pub(super) fn reset(&mut self) {
        self.shown.clear();
    }

    /// Whether a change of one document can change what is shown of others.
    pub(super) fn is_limited(&self) -> bool {
        matches!(&self.scope, Scope::Query(query) if query.is_limited())
    }

    /// Tells of everything that is not as the client has seen it.
    pub(super) fn refresh(&mut self, documents: &BTreeMap<String, Arc<Document>>, deltas: &mut Deltas) {
        let mut gone = std::mem::take(&mut self.shown);
        for document in self.scope.select(documents) {
            let seen = gone.remove(&document.name);
            if seen != Some(document.update_time) {
                deltas.show(self.id, &document);
            }
            self.shown.insert(document.name.clone(), document.update_time);
        }
        for name in gone.keys() {
            deltas.hide(self.id, name, documents.get(name));
        }
    }

    /// Tells of one change.
    pub(super) fn apply(&mut self, change: &Change, deltas: &mut Deltas) {
        let after = change.after.as_ref().filter(|document| match &self.scope {
            Scope::Documents(names) => names.contains(&document.name),
            Scope::Query(query) => query.matches(document),
        });
        if let Some(document) = after {
            deltas.show(self.id, document);
            self.shown.insert(document.name.clone(), document.update_time);
        } else if self.shown.remove(&change.name).is_some() {
            deltas.hide(self.id, &change.name, change.after.as_ref());
        }
    }
}
