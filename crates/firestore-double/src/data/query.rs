use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::Direction;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{Cursor, Document, StructuredQuery};
use tonic::Status;

use super::documents::children;
use super::field_path::{FieldPath, NAME};
use super::filter::{Conditions, operand};
use super::value::compare;
use crate::failure::unknown;
use crate::name::check_id;

/// A query over the documents of one collection.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// The name of the collection.
    pub(crate) collection: String,
    pub(crate) conditions: Conditions,
    /// Ends in the name, so that no two documents are equal.
    pub(crate) orders: Vec<Order>,
    start: Option<Cursor>,
    end: Option<Cursor>,
    offset: usize,
    limit: Option<usize>,
    select: Option<Vec<FieldPath>>,
}

/// A field to sort by.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) field: FieldPath,
    pub(crate) descending: bool,
}

/// The answer to a query.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) skipped: usize,
    pub(crate) documents: Vec<Arc<Document>>,
}

impl Query {
    /// Whether documents are found or sorted by the field of this name.
    pub(crate) fn uses(&self, field: &str) -> bool {
        let fields = self.conditions.iter().map(|condition| &condition.field);
        fields.chain(self.orders.iter().map(|order| &order.field)).any(|used| used.is(field))
    }

    /// A query below `parent`, which is a document or the root of a database.
    pub(crate) fn parse(parent: &str, query: StructuredQuery) -> Result<Self, Status> {
        let [from] = query.from.as_slice() else { return Err(unknown("queries of other than one collection")) };
        if from.all_descendants || query.find_nearest.is_some() {
            return Err(unknown("queries of all descendants or nearest neighbours"));
        }
        check_id(&from.collection_id)?;
        let conditions = query.r#where.map(Conditions::parse).transpose()?.unwrap_or_else(Conditions::none);
        let mut orders = Vec::new();
        for order in query.order_by {
            let field = FieldPath::parse(&order.field.unwrap_or_default().field_path)?;
            orders.push(Order { field, descending: order.direction == Direction::Descending as i32 });
        }
        add_implicit(&mut orders, &conditions)?;
        let select = query.select.map(|select| {
            select.fields.iter().map(|field| FieldPath::parse(&field.field_path)).collect::<Result<Vec<_>, _>>()
        });
        let number =
            |n: i32| usize::try_from(n).map_err(|_| Status::invalid_argument("A limit or offset is negative."));
        let query = Self {
            collection: format!("{parent}/{}", from.collection_id),
            conditions,
            orders,
            start: query.start_at,
            end: query.end_at,
            offset: number(query.offset)?,
            limit: query.limit.map(number).transpose()?,
            select: select.transpose()?,
        };
        if [&query.start, &query.end].into_iter().flatten().any(|cursor| cursor.values.len() > query.orders.len()) {
            return Err(Status::invalid_argument("A cursor has more values than the query has orders."));
        }
        Ok(query)
    }

    /// Whether only some of the documents that match are asked for.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some() || self.offset > 0
    }

    /// Whether the document is among those of which limit and offset choose.
    pub(crate) fn matches(&self, document: &Document) -> bool {
        let id = document.name.strip_prefix(&self.collection).and_then(|rest| rest.strip_prefix('/'));
        id.is_some_and(|id| !id.contains('/'))
            && self.conditions.matches(document)
            && self.orders.iter().all(|order| operand(document, &order.field).is_some())
            && self.start.as_ref().is_none_or(|start| match self.compare_to_cursor(document, start) {
                Ordering::Less => false,
                Ordering::Equal => start.before,
                Ordering::Greater => true,
            })
            && self.end.as_ref().is_none_or(|end| match self.compare_to_cursor(document, end) {
                Ordering::Less => true,
                Ordering::Equal => !end.before,
                Ordering::Greater => false,
            })
    }

    /// All that the query finds, in order.
    pub(crate) fn run(&self, documents: &BTreeMap<String, Arc<Document>>) -> Found {
        let mut found: Vec<_> =
            children(documents, &self.collection).filter(|document| self.matches(document)).cloned().collect();
        found.sort_by(|a, b| self.compare(a, b));
        let skipped = self.offset.min(found.len());
        found.drain(..skipped);
        found.truncate(self.limit.unwrap_or(usize::MAX));
        Found { skipped, documents: found }
    }

    /// The last document that had to be looked at, if that was not the last one that matches.
    pub(crate) fn last_seen(&self, found: &Found) -> Option<Arc<Document>> {
        if self.limit != Some(found.documents.len()) {
            return None;
        }
        found.documents.last().cloned()
    }

    /// The order of two documents that match.
    pub(crate) fn compare(&self, a: &Document, b: &Document) -> Ordering {
        for order in &self.orders {
            let (Some(a), Some(b)) = (operand(a, &order.field), operand(b, &order.field)) else { continue };
            match order.apply(compare(&a, &b)) {
                Ordering::Equal => {}
                different => return different,
            }
        }
        Ordering::Equal
    }

    /// The document with only those fields that were asked for.
    pub(crate) fn project(&self, document: &Document) -> Document {
        match &self.select {
            None => document.clone(),
            Some(fields) => project(document, fields),
        }
    }

    fn compare_to_cursor(&self, document: &Document, cursor: &Cursor) -> Ordering {
        for (order, value) in self.orders.iter().zip(&cursor.values) {
            let Some(actual) = operand(document, &order.field) else { continue };
            match order.apply(compare(&actual, value)) {
                Ordering::Equal => {}
                different => return different,
            }
        }
        Ordering::Equal
    }
}

impl Order {
    fn apply(&self, ordering: Ordering) -> Ordering {
        if self.descending { ordering.reverse() } else { ordering }
    }
}

/// The document with only these fields.
pub(crate) fn project(document: &Document, fields: &[FieldPath]) -> Document {
    let mut projected = Document { fields: Default::default(), ..document.clone() };
    for field in fields.iter().filter(|field| !field.is_name()) {
        if let Some(value) = field.get(&document.fields) {
            field.set(&mut projected.fields, Some(value.clone()));
        }
    }
    projected
}

/// Sorts by what is compared for more than equality, and at last by the name, in the direction of
/// what was asked for last.
fn add_implicit(orders: &mut Vec<Order>, conditions: &Conditions) -> Result<(), Status> {
    let descending = orders.last().is_some_and(|order| order.descending);
    let is_sorted = |orders: &[Order], field: &FieldPath| orders.iter().any(|order| order.field == *field);
    for condition in conditions.iter().filter(|condition| condition.is_inequality()) {
        if !is_sorted(orders, &condition.field) {
            orders.push(Order { field: condition.field.clone(), descending });
        }
    }
    let name = FieldPath::parse(NAME)?;
    if !is_sorted(orders, &name) {
        orders.push(Order { field: name, descending });
    }
    Ok(())
}
