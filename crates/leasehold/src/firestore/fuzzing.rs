use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::value::ValueType;

use super::FirestoreOptions;
use super::entries::array;
use super::known::Known;
use super::record::{self, Fields, counter, lock};
use super::url::Target as Url;
use crate::backend::Record;
use crate::fuzzing::{self, Target, fields, shows_no_secret};
use crate::key_state::Place;
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

/// What is read of a document is read again as it was, once it was written: with the same entry as
/// one who holds the key, as one who waits for it, and as what is neither.
fn known(document: &api::Document, id: &str, as_map: bool) {
    let entry = match as_map {
        true => ValueType::MapValue(api::MapValue { fields: document.fields.clone() }),
        false => ValueType::StringValue(id.to_owned()),
    };
    let mut document = document.clone();
    for (name, mode) in [(lock::GRANTS, "shared"), (lock::LINE, "permit")] {
        let mut entry = entry.clone();
        if let ValueType::MapValue(map) = &mut entry {
            map.fields.insert("mode".to_owned(), record::text(mode));
            for (name, other) in [("sinceMs", lock::ACQUIRED_AT), ("untilMs", lock::EXPIRES_AT), ("of", lock::FENCE)] {
                map.fields.extend(document.fields.get(other).cloned().map(|value| (name.to_owned(), value)));
            }
        }
        document.fields.insert(name.to_owned(), array(vec![api::Value { value_type: Some(entry) }]));
    }
    for lock_id in [id, "~s", "~q"] {
        document.fields.insert(lock::ID.to_owned(), record::text(lock_id));
        let now = Timestamp::from_millis(0);
        let Ok(known) = Known::of(&document).and_then(|known| known.at(now)) else { continue };
        let Some(fields) = known.fields("document", now) else { continue };
        let written = api::Document { fields, ..api::Document::default() };
        let again = Known::of(&written).expect("what was written can be read");
        // The end of time is kept in whole milliseconds.
        let held = |grant: &Record| (grant.lock_id, grant.fence, grant.expires_at.as_millis(), grant.slot);
        assert!(again.state.grants.iter().map(held).eq(known.state.live(now).map(held)));
        let waits = |place: &Place| (place.waiter.lock_id, place.waiter.until.as_millis(), place.called);
        assert!(again.state.line.iter().map(waits).eq(known.state.line.iter().map(waits)));
    }
}

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
    known(&document, &id, kind(7));
    match record::last_fence(&document) {
        Ok(last) => assert_eq!(last.to_string(), fence),
        Err(error) => shows_no_secret(&error),
    }
    // What is told of a taken lock is told again as it was.
    if let (Some(taken), Ok(last)) = (record::taken(&document), Fence::new(7)) {
        let told = record::counter_document(String::new(), &key, last, Some(&taken), Timestamp::from_millis(0));
        assert_eq!(record::taken(&told).map(|told| told.fences), Some(taken.fences));
    }
}
