//! Which queries Firestore answers from the indexes that it makes by itself.

use std::collections::BTreeSet;

use tonic::Status;

use super::filter::{Condition, Conditions};
use super::query::{Order, Query};

/// Refuses a query by a field whose own index was taken away. `exempted` has them as
/// `collection.field`.
pub(crate) fn check_exemptions(query: &Query, exempted: &BTreeSet<String>) -> Result<(), Status> {
    let collection = query.collection.rsplit('/').next().unwrap_or_default();
    let is_exempted = |name: &&String| {
        name.strip_prefix(collection).and_then(|rest| rest.strip_prefix('.')).is_some_and(|field| query.uses(field))
    };
    match exempted.iter().find(is_exempted) {
        Some(_) => Err(Status::failed_precondition("The query requires an index on a field that was exempted.")),
        None => Ok(()),
    }
}

/// Refuses a query that needs an index which somebody would have to create.
///
/// Every field has an index of its own, in both directions, which ends in the name in the same
/// direction; several of them together answer equalities. Names alone are indexed upwards only. The
/// elements of an array are indexed as well; here, they are answered by themselves only. Each
/// alternative is answered from indexes of its own.
pub(crate) fn check(conditions: &Conditions, orders: &[Order]) -> Result<(), Status> {
    conditions.alternatives().try_for_each(|all| check_all(all, orders))
}

fn check_all(conditions: &[Condition], orders: &[Order]) -> Result<(), Status> {
    let equalities = conditions.iter().filter(|condition| !condition.is_inequality() && !condition.field.is_name());
    let has_equality = equalities.count() > 0;
    let sorted: Vec<_> = orders.iter().filter(|order| !order.field.is_name()).collect();
    let name_is_first = orders.first().is_some_and(|order| order.field.is_name());
    let has_elements = conditions.iter().any(Condition::is_about_elements);
    let automatic = match sorted.as_slice() {
        _ if has_elements && conditions.len() > 1 => false,
        [] => has_equality || orders.iter().all(|order| !order.descending),
        [field] if !has_equality && !name_is_first => orders.iter().all(|order| order.descending == field.descending),
        _ => false,
    };
    if automatic {
        return Ok(());
    }
    Err(Status::failed_precondition(
        "The query requires an index, and firestore-double has none but the automatic ones.",
    ))
}
