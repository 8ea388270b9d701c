//! Paths of fields: `a.b`, where a name that is not a plain word stands in backticks.

use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::value::ValueType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{MapValue, Value};
use tonic::Status;

/// The field that stands for the name of a document.
pub(crate) const NAME: &str = "__name__";

/// The way to a field through maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<String>);

impl FieldPath {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let wrong = || Status::invalid_argument(format!("Invalid field path {text:?}."));
        let mut names = Vec::new();
        let mut rest = text;
        loop {
            let (name, after) = if let Some(quoted) = rest.strip_prefix('`') {
                unquote(quoted).ok_or_else(wrong)?
            } else {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            };
            if name.is_empty() {
                return Err(wrong());
            }
            names.push(name);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(Self(names)),
                None => return Err(wrong()),
            }
        }
    }

    /// Whether it is the field of this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.0.len() == 1 && self.0[0] == name
    }

    /// Whether it is the name of the document rather than a field.
    pub(crate) fn is_name(&self) -> bool {
        self.0.len() == 1 && self.0[0] == NAME
    }

    pub(crate) fn get<'a>(&self, fields: &'a HashMap<String, Value>) -> Option<&'a Value> {
        let (last, maps) = self.0.split_last()?;
        maps.iter().try_fold(fields, |fields, name| map(fields.get(name)?))?.get(last)
    }

    /// Sets or, without a value, removes the field.
    pub(crate) fn set(&self, fields: &mut HashMap<String, Value>, value: Option<Value>) {
        set(&self.0, fields, value);
    }
}

fn set(path: &[String], fields: &mut HashMap<String, Value>, value: Option<Value>) {
    match (path, value) {
        ([], _) => {}
        ([name], None) => {
            fields.remove(name);
        }
        ([name], Some(value)) => {
            fields.insert(name.clone(), value);
        }
        ([name, rest @ ..], value) => {
            if value.is_none() && fields.get(name).and_then(map).is_none() {
                return;
            }
            // Whatever is in the way is replaced by a map.
            let inner = fields.entry(name.clone()).or_default();
            if map(inner).is_none() {
                inner.value_type = Some(ValueType::MapValue(MapValue::default()));
            }
            if let Some(ValueType::MapValue(inner)) = &mut inner.value_type {
                set(rest, &mut inner.fields, value);
            }
        }
    }
}

fn map(value: &Value) -> Option<&HashMap<String, Value>> {
    match &value.value_type {
        Some(ValueType::MapValue(map)) => Some(&map.fields),
        _ => None,
    }
}

/// The name up to the closing backtick, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '`' => return Some((name, &text[at + 1..])),
            '\\' => name.push(characters.next()?.1),
            _ => name.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::json::fields_from_json;

    #[test]
    fn paths_are_parsed() {
        for (text, names) in [("a", vec!["a"]), ("a.b", vec!["a", "b"]), (r"`a.\`b`.c", vec!["a.`b", "c"])] {
            assert_eq!(FieldPath::parse(text).unwrap().0, names);
        }
        for wrong in ["", "a.", ".a", "`a", "`a`b"] {
            FieldPath::parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn fields_are_set_and_removed_inside_maps() {
        let number = |n: i64| Value { value_type: Some(ValueType::IntegerValue(n)) };
        let mut fields = fields_from_json(&json!({"a": {"integerValue": "1"}})).unwrap();
        let path = FieldPath::parse("m.b").unwrap();
        path.set(&mut fields, None);
        assert_eq!(fields.len(), 1);
        path.set(&mut fields, Some(number(2)));
        assert_eq!(path.get(&fields), Some(&number(2)));
        path.set(&mut fields, None);
        assert_eq!(path.get(&fields), None);
    }
}
