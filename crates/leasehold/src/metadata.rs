use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Error;

/// Free notes stored with a lock, for the people who look at it: a JSON object of at most 4 KiB.
/// Empty by default.
///
/// ```
/// use leasehold::Metadata;
///
/// let notes = Metadata::new(serde_json::json!({"job": "nightly", "attempt": 2}))?;
/// assert_eq!(notes.get("job").and_then(|job| job.as_str()), Some("nightly"));
/// assert!(Metadata::new(serde_json::json!(["not", "an", "object"])).is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Metadata(Option<Arc<Map<String, Value>>>);

impl Metadata {
    /// The most bytes the object may have, written as compact JSON.
    pub const MAX_BYTES: usize = 4096;

    /// The deepest nesting: the object itself, and what is in it. Readers of JSON have limits of
    /// their own, and a lock whose notes cannot be read back could not be dealt with at all.
    pub const MAX_DEPTH: usize = 32;

    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the value is not an object, is
    /// longer than [`MAX_BYTES`](Metadata::MAX_BYTES) or nested deeper than
    /// [`MAX_DEPTH`](Metadata::MAX_DEPTH).
    pub fn new(value: Value) -> Result<Self, Error> {
        let Value::Object(map) = value else {
            return Err(Error::invalid("the metadata is not a JSON object"));
        };
        if map.is_empty() {
            return Ok(Self(None));
        }
        if map.values().any(|value| deeper_than(value, Self::MAX_DEPTH - 1)) {
            return Err(Error::invalid(format!("the metadata is nested deeper than {} levels", Self::MAX_DEPTH)));
        }
        let metadata = Self(Some(Arc::new(map)));
        let size = metadata.to_json().len();
        if size > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "the metadata has {size} bytes as JSON, the limit is {}",
                Self::MAX_BYTES
            ))
            .with_hint("store a reference to the data instead of the data"));
        }
        Ok(metadata)
    }

    /// The notes that any serialisable map, struct or list of pairs amounts to.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use leasehold::Metadata;
    ///
    /// #[derive(serde::Serialize)]
    /// struct Job { name: &'static str, attempt: u32 }
    ///
    /// let notes = Metadata::from_serialize(&Job { name: "nightly", attempt: 2 })?;
    /// assert_eq!(notes.to_json(), r#"{"attempt":2,"name":"nightly"}"#);
    /// let notes = Metadata::from_serialize(&[("order", "A-17")])?;
    /// assert_eq!(notes.to_json(), r#"{"order":"A-17"}"#);
    /// assert!(Metadata::from_serialize(&BTreeMap::<String, u8>::new())?.is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Metadata::new), also if it cannot be written as JSON.
    pub fn from_serialize(notes: &impl Serialize) -> Result<Self, Error> {
        let value = serde_json::to_value(notes)
            .map_err(|source| Error::invalid("the metadata cannot be written as JSON").with_source(source))?;
        Self::new(match value {
            Value::Array(pairs) => from_pairs(pairs),
            other => other,
        })
    }

    /// The value stored under `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }

    /// All names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().flat_map(|map| map.iter()).map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The object as compact JSON; `{}` if empty.
    pub fn to_json(&self) -> String {
        self.0.as_ref().map_or_else(|| "{}".to_owned(), |map| Value::Object((**map).clone()).to_string())
    }
}

/// The object of a list of names and values; any other list as it is.
fn from_pairs(pairs: Vec<Value>) -> Value {
    let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([Value::String(name), value]) => Some((name.clone(), value.clone())),
        _ => None,
    };
    let map: Option<Map<_, _>> = pairs.iter().map(pair).collect();
    map.map_or(Value::Array(pairs), Value::Object)
}

/// Stops at the limit, so that it cannot run out of stack.
fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(values) => values.iter().any(|value| deeper_than(value, levels - 1)),
        Value::Object(values) => values.values().any(|value| deeper_than(value, levels - 1)),
        _ => false,
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl TryFrom<Value> for Metadata {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self, Error> {
        Self::new(value)
    }
}

impl From<Metadata> for Value {
    fn from(metadata: Metadata) -> Self {
        Value::Object(metadata.0.map(Arc::unwrap_or_clone).unwrap_or_default())
    }
}
