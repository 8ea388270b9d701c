//! Values as the JSON of Firestore's REST interface, which the control commands speak.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{ArrayValue, Document, MapValue, Value};
use serde_json::{Map, Value as Json, json};

/// A document as control commands show it.
pub(crate) fn document_to_json(document: &Document) -> Json {
    let time = |time: &Option<prost_types::Timestamp>| time.as_ref().map(ToString::to_string);
    json!({
        "fields": fields_to_json(&document.fields),
        "createTime": time(&document.create_time),
        "updateTime": time(&document.update_time),
    })
}

/// An object of typed values.
pub(crate) fn fields_from_json(json: &Json) -> Result<HashMap<String, Value>, String> {
    let Some(object) = json.as_object() else { return Err(format!("{json} is not an object")) };
    object.iter().map(|(name, value)| Ok((name.clone(), from_json(value)?))).collect()
}

fn fields_to_json(fields: &HashMap<String, Value>) -> Json {
    Json::Object(fields.iter().map(|(name, value)| (name.clone(), to_json(value))).collect())
}

/// One typed value, such as `{"integerValue": "1"}`.
pub(crate) fn from_json(json: &Json) -> Result<Value, String> {
    let wrong = || format!("{json} is not a value");
    let mut entries = json.as_object().ok_or_else(wrong)?.iter();
    let (Some((kind, value)), None) = (entries.next(), entries.next()) else { return Err(wrong()) };
    let text = || value.as_str().ok_or_else(wrong);
    let value_type = match kind.as_str() {
        "nullValue" => ValueType::NullValue(0),
        "booleanValue" => ValueType::BooleanValue(value.as_bool().ok_or_else(wrong)?),
        "integerValue" => match value.as_i64() {
            Some(number) => ValueType::IntegerValue(number),
            None => ValueType::IntegerValue(text()?.parse().map_err(|_| wrong())?),
        },
        "doubleValue" => match value.as_f64() {
            Some(number) => ValueType::DoubleValue(number),
            None => ValueType::DoubleValue(text()?.parse().map_err(|_| wrong())?),
        },
        "timestampValue" => ValueType::TimestampValue(text()?.parse().map_err(|_| wrong())?),
        "stringValue" => ValueType::StringValue(text()?.to_owned()),
        "bytesValue" => ValueType::BytesValue(BASE64_STANDARD.decode(text()?).map_err(|_| wrong())?),
        "referenceValue" => ValueType::ReferenceValue(text()?.to_owned()),
        "arrayValue" => {
            let values = value.get("values").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
            ValueType::ArrayValue(ArrayValue { values: values.iter().map(from_json).collect::<Result<_, _>>()? })
        }
        "mapValue" => {
            let fields = value.get("fields").map(fields_from_json).transpose()?.unwrap_or_default();
            ValueType::MapValue(MapValue { fields })
        }
        _ => return Err(wrong()),
    };
    Ok(Value { value_type: Some(value_type) })
}

fn to_json(value: &Value) -> Json {
    match &value.value_type {
        None | Some(ValueType::NullValue(_)) => json!({"nullValue": null}),
        Some(ValueType::BooleanValue(value)) => json!({"booleanValue": value}),
        // JSON numbers of other programs have no 64 bits.
        Some(ValueType::IntegerValue(value)) => json!({"integerValue": value.to_string()}),
        Some(ValueType::DoubleValue(value)) if value.is_finite() => json!({"doubleValue": value}),
        Some(ValueType::DoubleValue(value)) => json!({"doubleValue": value.to_string()}),
        Some(ValueType::TimestampValue(value)) => json!({"timestampValue": value.to_string()}),
        Some(ValueType::StringValue(value)) => json!({"stringValue": value}),
        Some(ValueType::BytesValue(value)) => json!({"bytesValue": BASE64_STANDARD.encode(value)}),
        Some(ValueType::ReferenceValue(value)) => json!({"referenceValue": value}),
        Some(ValueType::GeoPointValue(value)) => {
            json!({"geoPointValue": {"latitude": value.latitude, "longitude": value.longitude}})
        }
        Some(ValueType::ArrayValue(array)) => {
            json!({"arrayValue": {"values": array.values.iter().map(to_json).collect::<Vec<_>>()}})
        }
        Some(ValueType::MapValue(map)) => json!({"mapValue": {"fields": fields_to_json(&map.fields)}}),
        Some(_) => Json::Object(Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_json() {
        for value in [
            json!({"nullValue": null}),
            json!({"booleanValue": true}),
            json!({"integerValue": "-9223372036854775808"}),
            json!({"doubleValue": 1.5}),
            json!({"timestampValue": "2024-01-01T00:00:00.000001Z"}),
            json!({"stringValue": "ä"}),
            json!({"bytesValue": "AAH/"}),
            json!({"arrayValue": {"values": [{"mapValue": {"fields": {"a": {"nullValue": null}}}}]}}),
        ] {
            assert_eq!(to_json(&from_json(&value).unwrap()), value);
        }
        for wrong in [json!(1), json!({}), json!({"integerValue": "x"}), json!({"what": 1})] {
            from_json(&wrong).unwrap_err();
        }
    }
}
