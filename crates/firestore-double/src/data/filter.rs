use std::borrow::Cow;
use std::cmp::Ordering;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::composite_filter::Operator as Composite;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::field_filter::Operator;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::filter::FilterType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::structured_query::{FieldFilter, Filter};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{Document, Value};
use tonic::Status;

use super::field_path::FieldPath;
use super::value::{compare, same_type};
use crate::failure::unknown;

/// The most alternatives of one query, as documented: of those joined by `OR`, and of the values of
/// `IN` and `ARRAY_CONTAINS_ANY`, each of which is one.
const MOST_ALTERNATIVES: usize = 30;

/// What a document has to pass: all conditions of one of the alternatives.
#[derive(Clone, Debug)]
pub(crate) struct Conditions(Vec<Vec<Condition>>);

impl Conditions {
    /// Every document passes.
    pub(crate) fn none() -> Self {
        Self(vec![Vec::new()])
    }

    pub(crate) fn parse(filter: Filter) -> Result<Self, Status> {
        let found = Self(alternatives(filter)?);
        let count: usize = found.alternatives().map(|all| all.iter().map(Condition::values).product::<usize>()).sum();
        if count > MOST_ALTERNATIVES {
            let message = format!("The query has {count} disjunctions, and {MOST_ALTERNATIVES} are the most.");
            return Err(Status::invalid_argument(message));
        }
        for all in found.alternatives() {
            if all.iter().filter(|condition| condition.is_about_elements()).count() > 1 {
                return Err(Status::invalid_argument("An alternative has more than one 'ARRAY_CONTAINS'."));
            }
        }
        Ok(found)
    }

    pub(crate) fn alternatives(&self) -> impl Iterator<Item = &[Condition]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Those of all alternatives.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter().flatten()
    }

    pub(crate) fn matches(&self, document: &Document) -> bool {
        self.alternatives().any(|all| all.iter().all(|condition| condition.matches(document)))
    }
}

/// The alternatives of a filter. There is always one, if only one without conditions.
fn alternatives(filter: Filter) -> Result<Vec<Vec<Condition>>, Status> {
    let composite = match filter.filter_type {
        None => return Ok(vec![Vec::new()]),
        Some(FilterType::FieldFilter(filter)) => return Ok(vec![vec![Condition::parse(filter)?]]),
        Some(FilterType::CompositeFilter(composite)) if !composite.filters.is_empty() => composite,
        Some(_) => return Err(unknown("this filter")),
    };
    let parts: Result<Vec<_>, _> = composite.filters.into_iter().map(alternatives).collect();
    let parts = parts?;
    if composite.op == Composite::Or as i32 {
        return Ok(parts.concat());
    }
    if composite.op != Composite::And as i32 {
        return Err(unknown("this filter"));
    }
    let mut combined = vec![Vec::new()];
    for part in parts {
        let with =
            |all: &Vec<Condition>| part.iter().map(|more| [all.clone(), more.clone()].concat()).collect::<Vec<_>>();
        combined = combined.iter().flat_map(with).collect();
        if combined.len() > MOST_ALTERNATIVES {
            return Err(Status::invalid_argument("The query has too many disjunctions."));
        }
    }
    Ok(combined)
}

/// One comparison that a document has to pass.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) field: FieldPath,
    operator: Operator,
    value: Value,
}

impl Condition {
    fn parse(filter: FieldFilter) -> Result<Self, Status> {
        let field = FieldPath::parse(&filter.field.unwrap_or_default().field_path)?;
        let operator = Operator::try_from(filter.op).unwrap_or(Operator::Unspecified);
        let is_known = matches!(operator, Operator::Equal | Operator::ArrayContains) || takes_list(operator);
        if !is_known && !is_inequality(operator) {
            return Err(unknown(&format!("the operator {}", operator.as_str_name())));
        }
        let value = filter.value.unwrap_or_default();
        if takes_list(operator) && !(1..=MOST_ALTERNATIVES).contains(&values(&value).len()) {
            let name = operator.as_str_name();
            return Err(Status::invalid_argument(format!(
                "'{name}' requires a list of 1 to {MOST_ALTERNATIVES} values."
            )));
        }
        if field.is_name() && !matches!(value.value_type, Some(ValueType::ReferenceValue(_))) {
            return Err(Status::invalid_argument("__key__ filter value must be a Key"));
        }
        Ok(Self { field, operator, value })
    }

    pub(crate) fn is_inequality(&self) -> bool {
        is_inequality(self.operator)
    }

    /// Whether it is about the elements of an array.
    pub(crate) fn is_about_elements(&self) -> bool {
        matches!(self.operator, Operator::ArrayContains | Operator::ArrayContainsAny)
    }

    /// How many values there are of which one suffices.
    fn values(&self) -> usize {
        if takes_list(self.operator) { values(&self.value).len() } else { 1 }
    }

    /// A document without the field, or with a value of another type in it, never matches.
    pub(crate) fn matches(&self, document: &Document) -> bool {
        let Some(actual) = operand(document, &self.field) else { return false };
        match self.operator {
            Operator::In => return values(&self.value).iter().any(|value| equal(&actual, value)),
            Operator::ArrayContains => return values(&actual).iter().any(|element| equal(element, &self.value)),
            Operator::ArrayContainsAny => {
                let is_wanted = |element| values(&self.value).iter().any(|value| equal(element, value));
                return values(&actual).iter().any(is_wanted);
            }
            _ => {}
        }
        if !same_type(&actual, &self.value) {
            return false;
        }
        let order = compare(&actual, &self.value);
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::LessThan => order == Ordering::Less,
            Operator::LessThanOrEqual => order != Ordering::Greater,
            Operator::GreaterThan => order == Ordering::Greater,
            Operator::GreaterThanOrEqual => order != Ordering::Less,
            _ => false,
        }
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    same_type(a, b) && compare(a, b) == Ordering::Equal
}

/// The elements of an array; none of what is no array.
fn values(list: &Value) -> &[Value] {
    match &list.value_type {
        Some(ValueType::ArrayValue(list)) => &list.values,
        _ => &[],
    }
}

/// What a field of a document is compared by.
pub(crate) fn operand<'a>(document: &'a Document, field: &FieldPath) -> Option<Cow<'a, Value>> {
    if field.is_name() {
        let value_type = Some(ValueType::ReferenceValue(document.name.clone()));
        return Some(Cow::Owned(Value { value_type }));
    }
    field.get(&document.fields).map(Cow::Borrowed)
}

/// Whether it compares with any of several values.
fn takes_list(operator: Operator) -> bool {
    matches!(operator, Operator::In | Operator::ArrayContainsAny)
}

fn is_inequality(operator: Operator) -> bool {
    use Operator::{GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual};
    matches!(operator, LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual)
}
