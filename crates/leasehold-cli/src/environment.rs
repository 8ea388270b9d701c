//! What the command of `run` finds in its environment.

use leasehold::{Holder, Key};

use crate::granted::Granted;
use crate::own_lock::OwnLock;
use crate::store::Store;
use crate::{held, own_lock, store};

/// The variables, and which of them are not to be there. What the command inherited from another
/// run is not true for this one, but the locks of that one are still held.
pub(crate) fn variables(
    keys: &[Key],
    holder: &Holder,
    store: &Store,
    granted: Option<&Granted>,
    own_lock: Option<&OwnLock>,
) -> Vec<(&'static str, Option<String>)> {
    let lines = keys.iter().map(Key::as_str).collect::<Vec<_>>().join("\n");
    let mut variables = vec![
        ("LEASEHOLD_KEY", keys.first().map(|key| key.as_str().to_owned())),
        ("LEASEHOLD_KEYS", Some(lines)),
        ("LEASEHOLD_LOCK_ID", granted.map(|granted| lock_ids(keys, granted))),
        ("LEASEHOLD_FENCE", granted.map(|granted| granted.fence().to_string())),
        ("LEASEHOLD_SLOT", granted.and_then(Granted::slot).map(|slot| slot.to_string())),
        ("LEASEHOLD_HOLDER", Some(holder.as_str().to_owned())),
        (store::VARIABLE, Some(store.public_name())),
        (own_lock::VARIABLE, own_lock.map(|own_lock| own_lock.path().display().to_string())),
    ];
    variables.extend(granted.map(|granted| (held::VARIABLE, Some(held::with(keys, granted.fence())))));
    variables
}

/// In the order of the keys as they were typed.
fn lock_ids(keys: &[Key], granted: &Granted) -> String {
    let of = |key| granted.iter().find(|guard| guard.key() == key).map(|guard| guard.lock_id().expose());
    keys.iter().filter_map(of).collect::<Vec<_>>().join(",")
}
