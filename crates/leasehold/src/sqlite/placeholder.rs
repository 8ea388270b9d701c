//! The ids of placeholders in this layout.

use crate::backend::Mode;
use crate::remote::placeholder::Placeholder;

/// What such an id starts with. Unlike the `~` of other layouts it may be in a lock id, so that
/// programs that know no placeholders can read the row. No lock id that was drawn starts with it.
const START: &str = "-";

/// The id of a placeholder of this kind for a key.
pub(super) fn id(kind: Placeholder, key: &str) -> String {
    let id = kind.id(key);
    format!("{START}{}", &id[1..])
}

/// The kind of placeholder beside which grants of this mode are.
pub(super) fn beside(mode: Mode) -> Placeholder {
    if mode == Mode::Shared { Placeholder::Shared } else { Placeholder::Permits }
}

/// The kind of the placeholder for `key` that has this id, if it is one.
pub(super) fn of(lock_id: &str, key: &str) -> Option<Placeholder> {
    let rest = lock_id.strip_prefix(START)?;
    Placeholder::of(&format!("~{rest}")).filter(|kind| id(*kind, key) == lock_id)
}

/// Whether it may be the id of a placeholder, for those who would have to look up its key.
pub(super) fn may_be(lock_id: &str) -> bool {
    lock_id.starts_with(START)
}

/// The name of a holder for programs that know no placeholders. It is nobody's, so that no program
/// takes the lock for one that it has left behind.
pub(super) fn holder(kind: Placeholder) -> &'static str {
    match kind {
        Placeholder::Shared => "(shared)",
        Placeholder::Permits => "(permits)",
        Placeholder::Called => "(first in line)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, LockId};

    #[test]
    fn ids_of_placeholders_can_be_read_as_lock_ids_and_are_those_of_their_key_alone() {
        for kind in [Placeholder::Shared, Placeholder::Permits, Placeholder::Called] {
            let id = id(kind, "order:42");
            assert!(id.parse::<LockId>().is_ok() && may_be(&id));
            assert_eq!(of(&id, "order:42"), Some(kind));
            assert_eq!(of(&id, "order:43"), None);
            assert!(Holder::new(holder(kind)).is_ok());
        }
        assert_eq!(of("-s00000000000000000000", "order:42"), None);
        assert!((0..1000).all(|_| !may_be(LockId::random().unwrap().expose())));
    }
}
