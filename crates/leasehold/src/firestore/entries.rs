//! Those who hold a key together and those who stand in line for it, as its document lists them.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use api::value::ValueType;

use super::record::{Fields, integer, millis, string, text, time};
use crate::backend::{Mode, Record, Waiter};
use crate::key_state::Place;
use crate::remote::stored::holder;
use crate::{Fence, Holder, Key, Metadata};

/// Fields of one who holds or waits. Those that a lock has as well have the same names.
mod entry {
    pub(super) use super::super::record::lock::{ACQUIRED_AT, EXPIRES_AT, FENCE, HOLDER, ID, METADATA};
    pub(super) const MODE: &str = "mode";
    /// The number of permits that was asked for, and the one that was given.
    pub(super) const OF: &str = "of";
    pub(super) const SLOT: &str = "slot";
    pub(super) const SINCE: &str = "sinceMs";
    pub(super) const UNTIL: &str = "untilMs";
    pub(super) const CALLED: &str = "called";
}

/// The words for modes.
const EXCLUSIVE: &str = "exclusive";
const SHARED: &str = "shared";
const PERMIT: &str = "permit";

pub(super) fn array(values: Vec<api::Value>) -> api::Value {
    api::Value { value_type: Some(ValueType::ArrayValue(api::ArrayValue { values })) }
}

/// The maps in an array; what is no map has no fields.
pub(super) fn maps<'a>(fields: &'a Fields, name: &str) -> impl Iterator<Item = Option<&'a Fields>> {
    let values = match fields.get(name).and_then(|value| value.value_type.as_ref()) {
        Some(ValueType::ArrayValue(array)) => array.values.as_slice(),
        _ => &[],
    };
    values.iter().map(|value| match &value.value_type {
        Some(ValueType::MapValue(map)) => Some(&map.fields),
        _ => None,
    })
}

/// One who holds the key together with others.
pub(super) fn grant_entry(grant: &Record) -> api::Value {
    let mut fields = Fields::from([
        (entry::ID.to_owned(), text(grant.lock_id.expose())),
        (entry::FENCE.to_owned(), text(grant.fence.to_string())),
        (entry::ACQUIRED_AT.to_owned(), millis(grant.acquired_at)),
        (entry::EXPIRES_AT.to_owned(), millis(grant.expires_at)),
    ]);
    put_mode(&mut fields, grant.mode);
    if let Some(slot) = grant.slot {
        fields.insert(entry::SLOT.to_owned(), number(slot));
    }
    put_notes(&mut fields, grant.holder.as_ref(), &grant.metadata);
    map(fields)
}

pub(super) fn read_grant(key: &Key, fields: &Fields) -> Option<Record> {
    let mode = mode(fields)?;
    let slot = match mode.has_slots() {
        true => Some(u16::try_from(integer(fields, entry::SLOT)?).ok()?),
        false => None,
    };
    Some(Record {
        key: key.clone(),
        lock_id: string(fields, entry::ID)?.parse().ok()?,
        fence: string(fields, entry::FENCE)?.parse::<Fence>().and_then(|fence| Fence::new(fence.get())).ok()?,
        acquired_at: time(fields, entry::ACQUIRED_AT)?,
        expires_at: time(fields, entry::EXPIRES_AT)?,
        holder: holder(string(fields, entry::HOLDER)),
        metadata: metadata(fields),
        mode,
        slot,
    })
}

/// One who stands in line.
pub(super) fn place_entry(Place { waiter, called }: &Place) -> api::Value {
    let mut fields = Fields::from([
        (entry::ID.to_owned(), text(waiter.lock_id.expose())),
        (entry::SINCE.to_owned(), millis(waiter.since)),
        (entry::UNTIL.to_owned(), millis(waiter.until)),
    ]);
    if *called {
        fields.insert(entry::CALLED.to_owned(), api::Value { value_type: Some(ValueType::BooleanValue(true)) });
    }
    put_mode(&mut fields, waiter.mode);
    put_notes(&mut fields, waiter.holder.as_ref(), &waiter.metadata);
    map(fields)
}

pub(super) fn read_place(key: &Key, fields: &Fields) -> Option<Place> {
    let id = string(fields, entry::ID)?.parse().ok()?;
    let waiter = Waiter::new(key.clone(), id, mode(fields)?, time(fields, entry::SINCE)?, time(fields, entry::UNTIL)?)
        .with_holder(holder(string(fields, entry::HOLDER)))
        .with_metadata(metadata(fields));
    let called = fields.get(entry::CALLED).and_then(|value| value.value_type.as_ref());
    Some(Place { waiter, called: called == Some(&ValueType::BooleanValue(true)) })
}

fn put_mode(fields: &mut Fields, mode: Mode) {
    let word = match mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => SHARED,
        Mode::Permit { of } => {
            fields.insert(entry::OF.to_owned(), number(of.get()));
            PERMIT
        }
    };
    fields.insert(entry::MODE.to_owned(), text(word));
}

fn mode(fields: &Fields) -> Option<Mode> {
    match string(fields, entry::MODE)? {
        EXCLUSIVE => Some(Mode::Exclusive),
        SHARED => Some(Mode::Shared),
        PERMIT => {
            let of = u16::try_from(integer(fields, entry::OF)?).ok()?;
            Some(Mode::Permit { of: of.try_into().ok()? })
        }
        _ => None,
    }
}

fn put_notes(fields: &mut Fields, holder: Option<&Holder>, metadata: &Metadata) {
    if let Some(holder) = holder {
        fields.insert(entry::HOLDER.to_owned(), text(holder.as_str()));
    }
    if !metadata.is_empty() {
        fields.insert(entry::METADATA.to_owned(), text(metadata.to_json()));
    }
}

fn metadata(fields: &Fields) -> Metadata {
    string(fields, entry::METADATA).and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

fn map(fields: Fields) -> api::Value {
    api::Value { value_type: Some(ValueType::MapValue(api::MapValue { fields })) }
}

fn number(value: u16) -> api::Value {
    api::Value { value_type: Some(ValueType::IntegerValue(value.into())) }
}
