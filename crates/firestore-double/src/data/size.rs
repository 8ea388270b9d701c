//! How large a document is, by the rules that Firestore documents.

use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{Document, Value};
use tonic::Status;

/// The largest document.
const LARGEST: usize = 1 << 20;

/// Refuses a document that is too large.
pub(crate) fn check(document: &Document) -> Result<(), Status> {
    let size = name(&document.name) + fields(&document.fields) + 32;
    if size <= LARGEST {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "Document '{}' cannot be written because its size ({size} bytes) exceeds the maximum allowed size of \
         {LARGEST} bytes.",
        document.name
    )))
}

fn name(name: &str) -> usize {
    let path = name.split_once("/documents/").map_or(name, |(_, path)| path);
    path.split('/').map(|segment| segment.len() + 1).sum::<usize>() + 16
}

fn fields(fields: &HashMap<String, Value>) -> usize {
    fields.iter().map(|(name, content)| name.len() + 1 + value(content)).sum()
}

fn value(value: &Value) -> usize {
    match &value.value_type {
        Some(ValueType::IntegerValue(_) | ValueType::DoubleValue(_) | ValueType::TimestampValue(_)) => 8,
        Some(ValueType::StringValue(text)) => text.len() + 1,
        Some(ValueType::BytesValue(bytes)) => bytes.len(),
        Some(ValueType::ReferenceValue(reference)) => name(reference),
        Some(ValueType::GeoPointValue(_)) => 16,
        Some(ValueType::ArrayValue(array)) => array.values.iter().map(self::value).sum(),
        Some(ValueType::MapValue(map)) => fields(&map.fields),
        _ => 1,
    }
}
