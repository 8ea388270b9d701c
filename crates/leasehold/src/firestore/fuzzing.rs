use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::value::ValueType;

use super::FirestoreOptions;
use super::record::{self, Fields, counter, lock};
use super::url::Target as Url;
use crate::fuzzing::{self, Target, fields, shows_no_secret};
use crate::{Fence, Timestamp};

/// URLs of databases, which have no place for a password.
pub const FIRESTORE_URL: Target = Target {
    name: "firestore_url",
    run: |data| fuzzing::url(data, &["firestore"], &["password"], parse_url),
    corpus: &[
        b"\x00//acme",
        b"\x00//example.com:acme/eu%2D1?locks=l&fences=f&timeout=2.5s",
        b"\x00//acme/(default)?emulator=[::1]:8080",
        b"\x00//acme?endpoint=h:443",
        b"\x00me\xffx\xff@\xffacme\xfflocks",
        b"\x00//acme?emulator=h:99999",
        b"\x00//a/b/c?locks=__x__",
    ],
};

fn parse_url(url: &str) -> Result<(), crate::Error> {
    Url::read(url, FirestoreOptions::default()).map(drop)
}

/// Documents as anybody may have written them.
pub const FIRESTORE_DOCUMENT: Target = Target {
    name: "firestore_document",
    run: document,
    corpus: &[
        b"\x00\x00\xffkey\xffabcdefghijklmnopqrstuv\xff000000000000007\xff1700000000000\xff1700000030000\xff{}",
        b"\x07\x00\xffs3cret\xffs3cret\xff7\xff-1\xff9223372036854775807\xff{\"a\":[1]}",
        b"\x00\x03\xff\xff\xff\xffNaN\xff1e300\xffx",
    ],
};

/// The first two bytes choose types that the fields do not have.
fn document(data: &[u8]) {
    let [kinds, key, id, fence, since, until, more] = fields(data);
    let kind = |bit: u32| kinds.bytes().next().is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    let number = |text: &str, odd: bool| match text.parse::<i64>() {
        Ok(number) if !odd => ValueType::IntegerValue(number),
        _ => text.parse::<f64>().map_or_else(|_| ValueType::StringValue(text.to_owned()), ValueType::DoubleValue),
    };
    let word =
        |value: &str, odd: bool| if odd { number(value, true) } else { ValueType::StringValue(value.to_owned()) };
    let values = [
        (lock::KEY, word(&key, kind(0))),
        (lock::ID, word(&id, kind(1))),
        (lock::FENCE, word(&fence, kind(2))),
        (lock::ACQUIRED_AT, number(&since, kind(3))),
        (lock::EXPIRES_AT, number(&until, kind(4))),
        (lock::HOLDER, word(&more, kind(5))),
        (lock::METADATA, word(&more, kind(6))),
        (counter::KEY, word(&key, false)),
        (counter::TAKEN_FENCE, word(&fence, false)),
        (counter::TAKEN_AT, number(&since, false)),
        (counter::TAKEN_HOW, word(if kind(7) { "stolen" } else { &more }, false)),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), api::Value { value_type: Some(value) }));
    let document = api::Document { fields: Fields::from(values), ..api::Document::default() };
    fuzzing::record(record::stored(&document).and_then(record::into_record));
    match record::last_fence(&document) {
        Ok(last) => assert_eq!(last.to_string(), fence),
        Err(error) => shows_no_secret(&error),
    }
    // What is told of a taken lock is told again as it was.
    if let (Some(taken), Ok(last)) = (record::taken(&document), Fence::new(7)) {
        let told = record::counter_document(String::new(), &key, last, Some(&taken), Timestamp::from_millis(0));
        assert_eq!(record::taken(&told).as_ref().map(|told| told.fence), Some(taken.fence));
    }
}
