//! Documents: locks and fence counters as they are stored.

use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::value::ValueType;

use super::entries::array;
use crate::backend::Record;
use crate::remote::stored::{Stored, holder};
use crate::{Error, ErrorCode, Fence, Loss, Metadata, Timestamp};

/// Fields of a lock.
pub(super) mod lock {
    pub(crate) const ID: &str = "lockId";
    pub(crate) const EXPIRES_AT: &str = "expiresAtMs";
    pub(crate) const ACQUIRED_AT: &str = "acquiredAtMs";
    pub(crate) const KEY: &str = "key";
    pub(crate) const FENCE: &str = "fence";
    /// Only we write this one and the next.
    pub(crate) const HOLDER: &str = "holder";
    pub(crate) const METADATA: &str = "metadata";
    /// Who holds the key, where that is not one alone. Only we write this one and the next two.
    pub(crate) const GRANTS: &str = "grants";
    /// Who waits for it.
    pub(crate) const LINE: &str = "line";
    /// The ids of those in either, so that they are found.
    pub(crate) const IDS: &str = "ids";
}

/// Fields of a fence counter.
pub(super) mod counter {
    pub(crate) const FENCE: &str = "fence";
    pub(crate) const KEY: &str = "keyDebug";
    /// The last lock of the key that was taken from its holder, for some time: its fence, when and
    /// how. Only we write these.
    pub(crate) const TAKEN_FENCE: &str = "takenFence";
    /// The fences of others that were taken together with it.
    pub(crate) const TAKEN_MORE: &str = "takenMore";
    pub(crate) const TAKEN_AT: &str = "takenAtMs";
    pub(crate) const TAKEN_HOW: &str = "takenHow";
    pub(crate) const ALL: [&str; 6] = [FENCE, KEY, TAKEN_FENCE, TAKEN_MORE, TAKEN_AT, TAKEN_HOW];
}

/// How long a counter tells of a lock that was taken: longer than anybody needs to hear of it, and
/// short enough that later grants of the key are of no interest to those who listen.
const TOLD_FOR_MILLIS: u64 = 60_000;

/// The words for how a lock was taken.
const STOLEN: &str = "stolen";
const FORCE_RELEASED: &str = "force-released";

pub(super) type Fields = HashMap<String, api::Value>;

pub(super) fn text(value: impl Into<String>) -> api::Value {
    api::Value { value_type: Some(ValueType::StringValue(value.into())) }
}

pub(super) fn millis(at: Timestamp) -> api::Value {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    api::Value { value_type: Some(ValueType::IntegerValue(millis)) }
}

/// The fields of a lock, under an id that may be another.
pub(super) fn fields(record: &Record, id: &str) -> Fields {
    let mut fields = Fields::from([
        (lock::ID.to_owned(), text(id)),
        (lock::EXPIRES_AT.to_owned(), millis(record.expires_at)),
        (lock::ACQUIRED_AT.to_owned(), millis(record.acquired_at)),
        (lock::KEY.to_owned(), text(record.key.as_str())),
        (lock::FENCE.to_owned(), text(record.fence.to_string())),
    ]);
    if let Some(holder) = &record.holder {
        fields.insert(lock::HOLDER.to_owned(), text(holder.as_str()));
    }
    if !record.metadata.is_empty() {
        fields.insert(lock::METADATA.to_owned(), text(record.metadata.to_json()));
    }
    fields
}

/// A document with one field, for a write of that field.
pub(super) fn one_field(name: &str, field: &str, value: api::Value) -> api::Document {
    api::Document { name: name.to_owned(), fields: [(field.to_owned(), value)].into(), ..api::Document::default() }
}

/// Reads the document of a lock.
///
/// # Errors
///
/// `Internal` if it is none.
pub(super) fn stored(document: &api::Document) -> Result<Stored, Error> {
    let fields = &document.fields;
    let word = |name| string(fields, name).map(str::to_owned).ok_or_else(not_a_lock);
    let time = |name| time(fields, name).ok_or_else(not_a_lock);
    let metadata = string(fields, lock::METADATA).map(serde_json::from_str::<Metadata>);
    Ok(Stored {
        key: word(lock::KEY)?,
        lock_id: word(lock::ID)?,
        fence: word(lock::FENCE)?,
        acquired_at: time(lock::ACQUIRED_AT)?,
        expires_at: time(lock::EXPIRES_AT)?,
        holder: holder(string(fields, lock::HOLDER)),
        metadata: metadata.and_then(Result::ok).unwrap_or_default(),
    })
}

/// # Errors
///
/// `Internal` if the key, the lock id or the fence is not one.
pub(super) fn into_record(stored: Stored) -> Result<Record, Error> {
    stored.into_record(not_a_lock)
}

/// The last fence in a counter.
///
/// # Errors
///
/// `Internal` if it has none: what was granted before is not known.
pub(super) fn last_fence(document: &api::Document) -> Result<Fence, Error> {
    let written = string(&document.fields, counter::FENCE);
    // One that has outgrown its digits says what is wrong with it.
    if let Some(outgrown) = written.filter(|text| text.len() > Fence::DIGITS).and_then(|text| text.parse().ok()) {
        Fence::new(outgrown)?;
    }
    written.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::new(ErrorCode::Internal, "a document of the collection of fences is not a fence")
            .with_hint("another program may write there: give Leasehold collections of its own")
    })
}

/// Locks of a key that were taken from their holders together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) key: String,
    /// At least one.
    pub(super) fences: Vec<Fence>,
    pub(super) at: Timestamp,
    pub(super) how: Loss,
}

/// The locks of which a counter tells that they were taken.
pub(super) fn taken(document: &api::Document) -> Option<Taken> {
    let fields = &document.fields;
    let how = match string(fields, counter::TAKEN_HOW)? {
        STOLEN => Loss::Stolen,
        FORCE_RELEASED => Loss::ForceReleased,
        _ => return None,
    };
    let mut fences = vec![string(fields, counter::TAKEN_FENCE)?.parse().ok()?];
    fences.extend(strings(fields, counter::TAKEN_MORE).filter_map(|fence| fence.parse::<Fence>().ok()));
    let (key, at) = (string(fields, counter::KEY)?.to_owned(), time(fields, counter::TAKEN_AT)?);
    Some(Taken { key, fences, at, how })
}

/// A counter with this last fence. It goes on to tell of locks that were taken a moment ago.
pub(super) fn counter_document(
    name: String,
    key: &str,
    last: Fence,
    taken: Option<&Taken>,
    now: Timestamp,
) -> api::Document {
    let mut fields =
        Fields::from([(counter::FENCE.to_owned(), text(last.to_string())), (counter::KEY.to_owned(), text(key))]);
    if let Some(Taken { fences, at, how, .. }) = taken
        && let Some((first, more)) = fences.split_first()
        && at.as_millis() + TOLD_FOR_MILLIS > now.as_millis()
    {
        let how = if *how == Loss::ForceReleased { FORCE_RELEASED } else { STOLEN };
        fields.extend([
            (counter::TAKEN_FENCE.to_owned(), text(first.to_string())),
            (counter::TAKEN_AT.to_owned(), millis(*at)),
            (counter::TAKEN_HOW.to_owned(), text(how)),
        ]);
        if !more.is_empty() {
            let more = more.iter().map(|fence| text(fence.to_string())).collect();
            fields.insert(counter::TAKEN_MORE.to_owned(), array(more));
        }
    }
    api::Document { name, fields, ..api::Document::default() }
}

pub(super) fn string<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    match fields.get(name)?.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text),
        _ => None,
    }
}

/// The texts in an array.
fn strings<'a>(fields: &'a Fields, name: &str) -> impl Iterator<Item = &'a str> {
    let values = match fields.get(name).and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::ArrayValue(array)) => array.values.as_slice(),
        _ => &[],
    };
    values.iter().filter_map(|value| match value.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text.as_str()),
        _ => None,
    })
}

pub(super) fn time(fields: &Fields, name: &str) -> Option<Timestamp> {
    integer(fields, name).map(from_millis)
}

/// A whole number. JavaScript knows no other kind of number, and its libraries may store either.
pub(super) fn integer(fields: &Fields, name: &str) -> Option<i64> {
    /// Up to here every whole number is one of this kind.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match fields.get(name)?.value_type.as_ref()? {
        ValueType::IntegerValue(number) => Some(*number),
        #[allow(clippy::cast_possible_truncation)]
        ValueType::DoubleValue(number) if number.fract() == 0.0 && number.abs() <= EXACT => Some(*number as i64),
        _ => None,
    }
}

fn from_millis(value: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(value).unwrap_or(0))
}

/// A time of the server.
pub(super) fn timestamp(time: prost_types::Timestamp) -> Option<Timestamp> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let micros = u64::try_from(time.nanos).ok()? / 1000;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}

pub(super) fn not_a_lock() -> Error {
    Error::new(ErrorCode::Internal, "a document of the collection of locks is not a lock")
        .with_hint("another program may write there: remove the document, or give Leasehold collections of its own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Grant;
    use crate::{Holder, Key, LockId, Ttl};

    fn number(number: f64) -> api::Value {
        api::Value { value_type: Some(ValueType::DoubleValue(number)) }
    }

    fn granted() -> (Record, api::Document) {
        let ttl = Ttl::new(std::time::Duration::from_secs(30)).unwrap();
        let at = Timestamp::from_millis(1_700_000_000_000);
        let grant = Grant::new(LockId::random().unwrap(), Fence::new(7).unwrap(), at, at.expiry(ttl));
        let record = Record::new(Key::new("payment:42").unwrap(), &grant).with_holder(Some(Holder::default()));
        let fields = fields(&record, record.lock_id.expose());
        (record, api::Document { name: "name".to_owned(), fields, ..api::Document::default() })
    }

    #[test]
    fn a_document_has_the_fields_and_types_of_the_shared_layout_and_reads_as_it_was_written() {
        let (record, document) = granted();
        assert_eq!(string(&document.fields, "fence"), Some("000000000000007"));
        assert_eq!(document.fields["expiresAtMs"].value_type, Some(ValueType::IntegerValue(1_700_000_030_000)));
        assert_eq!(into_record(stored(&document).unwrap()).unwrap(), record);
    }

    #[test]
    fn whole_numbers_of_either_kind_are_times_and_others_are_not() {
        let (_, mut document) = granted();
        document.fields.insert(lock::EXPIRES_AT.to_owned(), number(1_700_000_030_000.0));
        assert_eq!(stored(&document).unwrap().expires_at, Timestamp::from_millis(1_700_000_030_000));
        for wrong in [number(f64::NAN), number(f64::INFINITY), number(1.5), number(1e300), text("1700000030000")] {
            document.fields.insert(lock::EXPIRES_AT.to_owned(), wrong);
            assert_eq!(stored(&document).unwrap_err().code(), ErrorCode::Internal);
        }
        document.fields.remove(lock::EXPIRES_AT);
        assert!(stored(&document).is_err(), "nothing is not a time");
    }

    #[test]
    fn a_counter_tells_of_taken_locks_for_a_minute() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let fence = |number| Fence::new(number).unwrap();
        let last = fence(8);
        for (how, fences) in [(Loss::Stolen, vec![fence(7)]), (Loss::ForceReleased, vec![fence(5), fence(6), fence(7)])]
        {
            let told = || Taken { key: "k".to_owned(), fences: fences.clone(), at, how };
            let after = |millis| {
                let now = Timestamp::from_millis(at.as_millis() + millis);
                counter_document("n".to_owned(), "k", last, Some(&told()), now)
            };
            assert_eq!(taken(&after(59_999)), Some(told()));
            assert_eq!(taken(&after(60_000)), None);
            assert_eq!(last_fence(&after(0)).unwrap(), last);
        }
    }

    #[test]
    fn a_counter_without_a_fence_is_not_taken_for_a_new_one() {
        for wrong in [text("7"), text("00000000000000x"), number(7.0)] {
            let document = one_field("n", counter::FENCE, wrong);
            assert_eq!(last_fence(&document).unwrap_err().code(), ErrorCode::Internal);
        }
    }
}
