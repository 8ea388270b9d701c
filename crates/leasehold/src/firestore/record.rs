//! Documents: locks and fence counters as they are stored.

use std::collections::HashMap;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::value::ValueType;

use crate::backend::{AcquireRequest, Grant, Record};
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
}

/// Fields of a fence counter.
pub(super) mod counter {
    pub(crate) const FENCE: &str = "fence";
    pub(crate) const KEY: &str = "keyDebug";
    /// The last lock of the key that was taken from its holder, for some time: its fence, when and
    /// how. Only we write these.
    pub(crate) const TAKEN_FENCE: &str = "takenFence";
    pub(crate) const TAKEN_AT: &str = "takenAtMs";
    pub(crate) const TAKEN_HOW: &str = "takenHow";
    pub(crate) const ALL: [&str; 5] = [FENCE, KEY, TAKEN_FENCE, TAKEN_AT, TAKEN_HOW];
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

/// The document of a lock that is granted.
pub(super) fn document(name: String, request: &AcquireRequest, grant: &Grant) -> api::Document {
    let mut fields = Fields::from([
        (lock::ID.to_owned(), text(grant.lock_id.expose())),
        (lock::EXPIRES_AT.to_owned(), millis(grant.expires_at)),
        (lock::ACQUIRED_AT.to_owned(), millis(grant.acquired_at)),
        (lock::KEY.to_owned(), text(request.key.as_str())),
        (lock::FENCE.to_owned(), text(grant.fence.to_string())),
        (lock::HOLDER.to_owned(), text(request.holder.as_str())),
    ]);
    if !request.metadata.is_empty() {
        fields.insert(lock::METADATA.to_owned(), text(request.metadata.to_json()));
    }
    api::Document { name, fields, ..api::Document::default() }
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
    let time = |name| integer(fields, name).map(from_millis).ok_or_else(not_a_lock);
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

/// A lock that was taken from its holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) key: String,
    pub(super) fence: Fence,
    pub(super) at: Timestamp,
    pub(super) how: Loss,
}

/// The lock of which a counter tells that it was taken.
pub(super) fn taken(document: &api::Document) -> Option<Taken> {
    let fields = &document.fields;
    let how = match string(fields, counter::TAKEN_HOW)? {
        STOLEN => Loss::Stolen,
        FORCE_RELEASED => Loss::ForceReleased,
        _ => return None,
    };
    Some(Taken {
        key: string(fields, counter::KEY)?.to_owned(),
        fence: string(fields, counter::TAKEN_FENCE)?.parse().ok()?,
        at: from_millis(integer(fields, counter::TAKEN_AT)?),
        how,
    })
}

/// A counter with this last fence. It goes on to tell of a lock that was taken a moment ago.
pub(super) fn counter_document(
    name: String,
    key: &str,
    last: Fence,
    taken: Option<&Taken>,
    now: Timestamp,
) -> api::Document {
    let mut fields =
        Fields::from([(counter::FENCE.to_owned(), text(last.to_string())), (counter::KEY.to_owned(), text(key))]);
    if let Some(&Taken { fence, at, how, .. }) = taken
        && at.as_millis() + TOLD_FOR_MILLIS > now.as_millis()
    {
        let how = if how == Loss::ForceReleased { FORCE_RELEASED } else { STOLEN };
        fields.extend([
            (counter::TAKEN_FENCE.to_owned(), text(fence.to_string())),
            (counter::TAKEN_AT.to_owned(), millis(at)),
            (counter::TAKEN_HOW.to_owned(), text(how)),
        ]);
    }
    api::Document { name, fields, ..api::Document::default() }
}

pub(super) fn string<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    match fields.get(name)?.value_type.as_ref()? {
        ValueType::StringValue(text) => Some(text),
        _ => None,
    }
}

/// A whole number. JavaScript knows no other kind of number, and its libraries may store either.
fn integer(fields: &Fields, name: &str) -> Option<i64> {
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
    use crate::{Key, LockId, Ttl};

    fn number(number: f64) -> api::Value {
        api::Value { value_type: Some(ValueType::DoubleValue(number)) }
    }

    fn granted() -> (AcquireRequest, Grant, api::Document) {
        let ttl = Ttl::new(std::time::Duration::from_secs(30)).unwrap();
        let request = AcquireRequest::new(Key::new("payment:42").unwrap(), LockId::random().unwrap(), ttl);
        let at = Timestamp::from_millis(1_700_000_000_000);
        let fence = Fence::new(7).unwrap();
        let grant = Grant { lock_id: request.lock_id, fence, acquired_at: at, expires_at: at.expiry(ttl) };
        let document = document("name".to_owned(), &request, &grant);
        (request, grant, document)
    }

    #[test]
    fn a_document_has_the_fields_and_types_of_the_shared_layout_and_reads_as_it_was_written() {
        let (request, grant, document) = granted();
        assert_eq!(string(&document.fields, "fence"), Some("000000000000007"));
        assert_eq!(document.fields["expiresAtMs"].value_type, Some(ValueType::IntegerValue(1_700_000_030_000)));
        let record = into_record(stored(&document).unwrap()).unwrap();
        assert_eq!((record.grant(), record.holder, record.key), (grant, Some(request.holder), request.key));
    }

    #[test]
    fn whole_numbers_of_either_kind_are_times_and_others_are_not() {
        let (_, _, mut document) = granted();
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
    fn a_counter_tells_of_a_taken_lock_for_a_minute() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let (fence, last) = (Fence::new(7).unwrap(), Fence::new(8).unwrap());
        for how in [Loss::Stolen, Loss::ForceReleased] {
            let told = || Taken { key: "k".to_owned(), fence, at, how };
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
