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

/// The most values of one operator `IN`, as documented.
const MOST_VALUES: usize = 30;

/// One comparison that a document has to pass.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) field: FieldPath,
    operator: Operator,
    value: Value,
}

impl Condition {
    /// All comparisons of a filter.
    pub(crate) fn parse_all(filter: Filter) -> Result<Vec<Self>, Status> {
        match filter.filter_type {
            None => Ok(Vec::new()),
            Some(FilterType::FieldFilter(filter)) => Ok(vec![Self::parse(filter)?]),
            Some(FilterType::CompositeFilter(composite)) if composite.op == Composite::And as i32 => {
                let parts: Result<Vec<_>, _> = composite.filters.into_iter().map(Self::parse_all).collect();
                Ok(parts?.concat())
            }
            Some(_) => Err(unknown("this filter")),
        }
    }

    fn parse(filter: FieldFilter) -> Result<Self, Status> {
        let field = FieldPath::parse(&filter.field.unwrap_or_default().field_path)?;
        let operator = Operator::try_from(filter.op).unwrap_or(Operator::Unspecified);
        if !matches!(operator, Operator::Equal | Operator::In) && !is_inequality(operator) {
            return Err(unknown(&format!("the operator {}", operator.as_str_name())));
        }
        let value = filter.value.unwrap_or_default();
        if operator == Operator::In && !(1..=MOST_VALUES).contains(&values(&value).len()) {
            return Err(Status::invalid_argument(format!("'IN' requires a list of 1 to {MOST_VALUES} values.")));
        }
        if field.is_name() && !matches!(value.value_type, Some(ValueType::ReferenceValue(_))) {
            return Err(Status::invalid_argument("__key__ filter value must be a Key"));
        }
        Ok(Self { field, operator, value })
    }

    pub(crate) fn is_inequality(&self) -> bool {
        is_inequality(self.operator)
    }

    /// A document without the field, or with a value of another type in it, never matches.
    pub(crate) fn matches(&self, document: &Document) -> bool {
        let Some(actual) = operand(document, &self.field) else { return false };
        if self.operator == Operator::In {
            let equals = |value| same_type(&actual, value) && compare(&actual, value) == Ordering::Equal;
            return values(&self.value).iter().any(equals);
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

/// The values that one of the operator `IN` may be.
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

fn is_inequality(operator: Operator) -> bool {
    use Operator::{GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual};
    matches!(operator, LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual)
}
