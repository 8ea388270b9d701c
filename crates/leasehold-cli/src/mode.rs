//! How locks are held, for people and for programs.

use leasehold::Mode;
use serde_json::{Value, json};

/// One word, for programs.
pub(crate) fn name(mode: Mode) -> String {
    match mode {
        Mode::Permit { .. } => "permit".to_owned(),
        other => other.to_string(),
    }
}

/// For people: `exclusive`, `shared`, `permit 0/3`, and `permit of 3` for one that is waited for.
pub(crate) fn text(mode: Mode, slot: Option<u16>) -> String {
    match (mode, slot) {
        (Mode::Permit { of }, Some(slot)) => format!("permit {slot}/{of}"),
        (Mode::Permit { of }, None) => format!("permit of {of}"),
        (other, _) => other.to_string(),
    }
}

/// Out of how many, if it is a permit.
pub(crate) fn permits(mode: Mode) -> Option<u16> {
    match mode {
        Mode::Permit { of } => Some(of.get()),
        _ => None,
    }
}

/// Adds the fields that tell how a lock is held.
pub(crate) fn add_fields(object: &mut Value, mode: Mode, slot: Option<u16>) {
    object["mode"] = name(mode).into();
    object["slot"] = json!(slot);
    object["permits"] = json!(permits(mode));
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn a_permit_tells_its_slot_and_out_of_how_many() {
        let permit = Mode::Permit { of: NonZeroU16::new(3).unwrap() };
        assert_eq!((text(permit, Some(0)), text(permit, None)), ("permit 0/3".to_owned(), "permit of 3".to_owned()));
        assert_eq!((text(Mode::Exclusive, None), text(Mode::Shared, None)), ("exclusive".into(), "shared".into()));
        let mut object = json!({ "key": "k" });
        add_fields(&mut object, permit, Some(2));
        assert_eq!(object, json!({ "key": "k", "mode": "permit", "slot": 2, "permits": 3 }));
        add_fields(&mut object, Mode::Shared, None);
        assert_eq!(object, json!({ "key": "k", "mode": "shared", "slot": null, "permits": null }));
    }
}
