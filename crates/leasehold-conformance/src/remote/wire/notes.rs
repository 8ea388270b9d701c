//! Notes as a flat list of tokens. Written as JSON within JSON they would not all come back as they
//! were: the parser goes only so deep, and may be off in the last digit of a fraction.

use leasehold::Metadata;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Token {
    Null,
    Bool(bool),
    Whole(Number),
    /// The bits of a number that is not whole.
    Fraction(u64),
    Text(String),
    /// So many values follow.
    List(usize),
    /// So many names, each with its value, follow.
    Object(usize),
}

pub(super) fn serialize<S: Serializer>(notes: &Metadata, serializer: S) -> Result<S::Ok, S::Error> {
    flatten(notes.clone().into()).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    let value = gather(Vec::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("notes that do not add up"))?;
    Metadata::new(value).map_err(D::Error::custom)
}

fn flatten(value: Value) -> Vec<Token> {
    let mut tokens = Vec::new();
    // What is still to be written, the next at the end.
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        tokens.push(match value {
            Value::Null => Token::Null,
            Value::Bool(value) => Token::Bool(value),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(fraction) => Token::Fraction(fraction.to_bits()),
                None => Token::Whole(number),
            },
            Value::String(text) => Token::Text(text),
            Value::Array(values) => {
                let token = Token::List(values.len());
                rest.extend(values.into_iter().rev());
                token
            }
            Value::Object(map) => {
                let token = Token::Object(map.len());
                rest.extend(map.into_iter().rev().flat_map(|(name, value)| [value, Value::String(name)]));
                token
            }
        });
    }
    tokens
}

fn gather(tokens: Vec<Token>) -> Option<Value> {
    // From the end, so that what belongs to a list is there before the list is, its first value on
    // top.
    let mut done: Vec<Value> = Vec::new();
    for token in tokens.into_iter().rev() {
        let value = match token {
            Token::Null => Value::Null,
            Token::Bool(value) => Value::Bool(value),
            Token::Whole(number) => Value::Number(number),
            Token::Fraction(bits) => Value::Number(Number::from_f64(f64::from_bits(bits))?),
            Token::Text(text) => Value::String(text),
            Token::List(length) => Value::Array((0..length).map(|_| done.pop()).collect::<Option<_>>()?),
            Token::Object(length) => {
                Value::Object((0..length).map(|_| named(&mut done)).collect::<Option<Map<_, _>>>()?)
            }
        };
        done.push(value);
    }
    done.pop().filter(|_| done.is_empty())
}

fn named(done: &mut Vec<Value>) -> Option<(String, Value)> {
    let Value::String(name) = done.pop()? else { return None };
    Some((name, done.pop()?))
}
