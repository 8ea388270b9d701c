use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Document;

use crate::data::history::Change;
use crate::data::query::Query;

/// What a transaction has read, and nobody else may change before it ends.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    documents: HashSet<String>,
    queries: Vec<Range>,
}

/// The documents that a query finds, those that do not exist yet included.
#[derive(Debug)]
struct Range {
    query: Query,
    /// Where a query with a limit stopped to look.
    end: Option<Arc<Document>>,
}

impl Reads {
    pub(crate) fn add_documents(&mut self, names: impl IntoIterator<Item = String>) {
        self.documents.extend(names);
    }

    pub(crate) fn add_query(&mut self, query: Query, end: Option<Arc<Document>>) {
        self.queries.push(Range { query, end });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.queries.is_empty()
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.documents.extend(other.documents);
        self.queries.extend(other.queries);
    }

    /// Whether any of the changes could be seen in what was read.
    pub(crate) fn touched_by(&self, changes: &[Change]) -> bool {
        changes.iter().any(|change| {
            self.documents.contains(&change.name)
                || [&change.before, &change.after]
                    .into_iter()
                    .flatten()
                    .any(|document| self.queries.iter().any(|range| range.contains(document)))
        })
    }
}

impl Range {
    fn contains(&self, document: &Document) -> bool {
        self.query.matches(document)
            && self.end.as_ref().is_none_or(|end| self.query.compare(document, end) != Ordering::Greater)
    }
}
