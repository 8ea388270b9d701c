//! The order of values that Firestore documents: by type first, then within the type.

use std::cmp::Ordering;
use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Value;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;

/// Compares any two values.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    use ValueType::{
        ArrayValue, BooleanValue, BytesValue, DoubleValue, GeoPointValue, IntegerValue, MapValue, ReferenceValue,
        StringValue, TimestampValue,
    };
    let by_type = rank(a).cmp(&rank(b));
    let (Some(a), Some(b)) = (&a.value_type, &b.value_type) else { return by_type };
    by_type.then_with(|| match (a, b) {
        (BooleanValue(a), BooleanValue(b)) => a.cmp(b),
        (IntegerValue(a), IntegerValue(b)) => a.cmp(b),
        (IntegerValue(a), DoubleValue(b)) => compare_doubles(to_double(*a), *b),
        (DoubleValue(a), IntegerValue(b)) => compare_doubles(*a, to_double(*b)),
        (DoubleValue(a), DoubleValue(b)) => compare_doubles(*a, *b),
        (TimestampValue(a), TimestampValue(b)) => (a.seconds, a.nanos).cmp(&(b.seconds, b.nanos)),
        (StringValue(a), StringValue(b)) => a.as_bytes().cmp(b.as_bytes()),
        (BytesValue(a), BytesValue(b)) => a.cmp(b),
        (ReferenceValue(a), ReferenceValue(b)) => compare_names(a, b),
        (GeoPointValue(a), GeoPointValue(b)) => {
            compare_doubles(a.latitude, b.latitude).then_with(|| compare_doubles(a.longitude, b.longitude))
        }
        (ArrayValue(a), ArrayValue(b)) => compare_all(a.values.iter(), b.values.iter(), compare),
        (MapValue(a), MapValue(b)) => compare_maps(&a.fields, &b.fields),
        _ => Ordering::Equal,
    })
}

/// Whether a filter with one of them can match the other.
pub(crate) fn same_type(a: &Value, b: &Value) -> bool {
    rank(a) == rank(b)
}

/// Compares resource names segment by segment.
pub(crate) fn compare_names(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

fn rank(value: &Value) -> u8 {
    match &value.value_type {
        None | Some(ValueType::NullValue(_)) => 0,
        Some(ValueType::BooleanValue(_)) => 1,
        Some(ValueType::IntegerValue(_) | ValueType::DoubleValue(_)) => 2,
        Some(ValueType::TimestampValue(_)) => 3,
        Some(ValueType::StringValue(_)) => 4,
        Some(ValueType::BytesValue(_)) => 5,
        Some(ValueType::ReferenceValue(_)) => 6,
        Some(ValueType::GeoPointValue(_)) => 7,
        Some(ValueType::ArrayValue(_)) => 8,
        Some(ValueType::MapValue(_)) => 9,
        // Parts of pipelines, which no document has.
        Some(_) => 10,
    }
}

/// NaN is the smallest number, and equal to itself.
fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

#[expect(clippy::cast_precision_loss, reason = "only numbers of different types are compared this way")]
fn to_double(number: i64) -> f64 {
    number as f64
}

fn compare_maps(a: &HashMap<String, Value>, b: &HashMap<String, Value>) -> Ordering {
    let sorted = |map| {
        let mut entries: Vec<_> = HashMap::iter(map).collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries
    };
    compare_all(sorted(a).into_iter(), sorted(b).into_iter(), |(a_key, a), (b_key, b)| {
        a_key.as_bytes().cmp(b_key.as_bytes()).then_with(|| compare(a, b))
    })
}

fn compare_all<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match compare(a, b) {
                Ordering::Equal => {}
                different => return different,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::json::from_json;

    #[test]
    fn values_have_the_documented_order() {
        let ascending = [
            json!({"nullValue": null}),
            json!({"booleanValue": false}),
            json!({"booleanValue": true}),
            json!({"doubleValue": "NaN"}),
            json!({"integerValue": "-5"}),
            json!({"doubleValue": -4.5}),
            json!({"integerValue": "7"}),
            json!({"doubleValue": 7.5}),
            json!({"timestampValue": "2024-01-01T00:00:00Z"}),
            json!({"timestampValue": "2024-01-01T00:00:00.000001Z"}),
            json!({"stringValue": ""}),
            json!({"stringValue": "B"}),
            json!({"stringValue": "a"}),
            json!({"stringValue": "ab"}),
            json!({"stringValue": "\u{e000}"}),
            json!({"stringValue": "\u{1f512}"}),
            json!({"bytesValue": "AA=="}),
            json!({"bytesValue": "AQ=="}),
            json!({"referenceValue": "projects/p/databases/d/documents/c/a"}),
            json!({"referenceValue": "projects/p/databases/d/documents/c/a-b"}),
            json!({"arrayValue": {"values": []}}),
            json!({"arrayValue": {"values": [{"integerValue": "1"}]}}),
            json!({"arrayValue": {"values": [{"integerValue": "1"}, {"integerValue": "0"}]}}),
            json!({"mapValue": {"fields": {}}}),
            json!({"mapValue": {"fields": {"a": {"integerValue": "2"}}}}),
            json!({"mapValue": {"fields": {"b": {"integerValue": "1"}}}}),
        ]
        .map(|value| from_json(&value).unwrap());
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }
}
