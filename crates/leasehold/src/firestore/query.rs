//! Questions about more documents than one.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::structured_query::composite_filter::Operator as Together;
use api::structured_query::field_filter::Operator;
use api::structured_query::filter::FilterType;
use api::structured_query::{
    CollectionSelector, CompositeFilter, Direction, FieldFilter, FieldReference, Filter, Order,
};

use api::value::ValueType;

use super::entries::array;
use super::names::Names;
use super::record::{counter, lock, millis, text};
use crate::{LockId, Timestamp};

/// The name of a document, as if it were a field.
const NAME: &str = "__name__";

/// All documents in which this id holds a lock or waits for one. More than one would be wrong, so
/// there is no limit.
pub(super) fn by_id(names: &Names, id: &LockId) -> api::StructuredQuery {
    by_either(names, std::slice::from_ref(id))
}

/// The most values that one query may ask for, as documented.
pub(super) const MOST_IDS: usize = 30;

/// The most if each of them may be in two places.
pub(super) const MOST_IDS_OF_EITHER: usize = MOST_IDS / 2;

/// All documents in which one of these ids holds a lock or waits for one. There may be
/// [`MOST_IDS_OF_EITHER`] of them.
pub(super) fn by_either(names: &Names, ids: &[LockId]) -> api::StructuredQuery {
    let either = combined(Together::Or, vec![alone(ids), among_others(ids)]);
    of(&names.locks, vec![either])
}

/// All documents of exclusive locks with one of these ids, of which there may be [`MOST_IDS`].
pub(super) fn by_ids_alone(names: &Names, ids: &[LockId]) -> api::StructuredQuery {
    of(&names.locks, vec![alone(ids)])
}

/// All documents in which one of these ids is one of several, or waits. There may be [`MOST_IDS`].
pub(super) fn by_ids_among_others(names: &Names, ids: &[LockId]) -> api::StructuredQuery {
    of(&names.locks, vec![among_others(ids)])
}

fn alone(ids: &[LockId]) -> Filter {
    match ids {
        [id] => filter(lock::ID, Operator::Equal, text(id.expose())),
        _ => filter(lock::ID, Operator::In, list(ids)),
    }
}

fn among_others(ids: &[LockId]) -> Filter {
    match ids {
        [id] => filter(lock::IDS, Operator::ArrayContains, text(id.expose())),
        _ => filter(lock::IDS, Operator::ArrayContainsAny, list(ids)),
    }
}

fn list(ids: &[LockId]) -> api::Value {
    array(ids.iter().map(|id| text(id.expose())).collect())
}

/// Where a listing goes on: the key and the name of the last document, which may be wanted again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    pub(super) again: bool,
}

/// Locks whose key starts with `prefix`, in the order of the keys.
pub(super) fn by_prefix(names: &Names, prefix: &str, start: Option<Start<'_>>, limit: usize) -> api::StructuredQuery {
    // Also of an empty one: what is not text comes behind all text, and is no key.
    let mut filters = vec![filter(lock::KEY, Operator::GreaterThanOrEqual, text(prefix))];
    if !prefix.is_empty() {
        filters.extend(end_of(prefix).map(|end| filter(lock::KEY, Operator::LessThan, text(end))));
    }
    let reference = |name: &str| api::Value { value_type: Some(ValueType::ReferenceValue(name.to_owned())) };
    api::StructuredQuery {
        order_by: [lock::KEY, NAME].map(ascending).into(),
        start_at: start
            .map(|Start { key, name, again }| api::Cursor { values: vec![text(key), reference(name)], before: again }),
        limit: Some(i32::try_from(limit).unwrap_or(i32::MAX)),
        ..of(&names.locks, filters)
    }
}

/// Counters that tell of a lock that was taken after `since`.
pub(super) fn taken_since(names: &Names, since: Timestamp) -> api::StructuredQuery {
    since_then(&names.fences, counter::TAKEN_AT, since)
}

/// Locks that were granted after `since`.
pub(super) fn granted_since(names: &Names, since: Timestamp) -> api::StructuredQuery {
    since_then(&names.locks, lock::ACQUIRED_AT, since)
}

/// All fence counters.
pub(super) fn counters(names: &Names) -> api::StructuredQuery {
    of(&names.fences, Vec::new())
}

fn since_then(collection: &str, field: &'static str, since: Timestamp) -> api::StructuredQuery {
    api::StructuredQuery {
        order_by: [field, NAME].map(ascending).into(),
        ..of(collection, vec![filter(field, Operator::GreaterThan, millis(since))])
    }
}

fn of(collection: &str, mut filters: Vec<Filter>) -> api::StructuredQuery {
    let selector = CollectionSelector { collection_id: collection.to_owned(), all_descendants: false };
    let filter = if filters.len() > 1 { Some(combined(Together::And, filters)) } else { filters.pop() };
    api::StructuredQuery { from: vec![selector], r#where: filter, ..api::StructuredQuery::default() }
}

fn combined(op: Together, filters: Vec<Filter>) -> Filter {
    Filter { filter_type: Some(FilterType::CompositeFilter(CompositeFilter { op: op.into(), filters })) }
}

fn filter(field: &str, op: Operator, value: api::Value) -> Filter {
    let filter = FieldFilter { field: Some(reference(field)), op: op.into(), value: Some(value) };
    Filter { filter_type: Some(FilterType::FieldFilter(filter)) }
}

fn ascending(field: &str) -> Order {
    Order { field: Some(reference(field)), direction: Direction::Ascending.into() }
}

fn reference(field: &str) -> FieldReference {
    FieldReference { field_path: field.to_owned() }
}

/// The first text behind all that start with `prefix`, if there is one.
fn end_of(prefix: &str) -> Option<String> {
    let mut end: Vec<char> = prefix.chars().collect();
    while let Some(last) = end.pop() {
        // Those between are halves of other characters, and none themselves.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            end.push(next);
            return Some(end.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_right_behind_it() {
        assert_eq!(end_of("a").as_deref(), Some("b"));
        assert_eq!(end_of("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end_of("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end_of("\u{10ffff}"), None);
    }

    proptest! {
        #[test]
        fn a_text_starts_with_a_prefix_if_it_is_between_it_and_its_end(prefix in "\\PC{1,3}", text in "\\PC{0,5}") {
            let end = end_of(&prefix);
            let between = |text: &str| text >= prefix.as_str() && end.as_deref().is_none_or(|end| text < end);
            let longer = format!("{prefix}{text}");
            prop_assert!(between(&longer));
            prop_assert_eq!(between(&text), text.starts_with(&prefix));
        }
    }
}
