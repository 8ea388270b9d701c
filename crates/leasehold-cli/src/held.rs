//! The locks that the processes around us hold: those of every `run` that we are part of.

use leasehold::{Contention, Fence, Key};
use serde_json::{Value, json};

/// Where a command finds the locks under which it runs: a JSON array, the outermost lock first.
pub(crate) const VARIABLE: &str = "LEASEHOLD_HELD";

/// Whether the grant that is in the way is held around us: whoever holds it waits for us, so that
/// we would wait for ever. A fence never comes back: a lock that was lost or released meanwhile is
/// not taken for it.
pub(crate) fn is_held_around_us(key: &Key, contention: &Contention) -> bool {
    contention.fence.is_some_and(|fence| inherited().contains(&entry(key, fence)))
}

/// The variable of a command that runs under this lock too.
pub(crate) fn with(key: &Key, fence: Fence) -> String {
    let mut held = inherited();
    held.push(entry(key, fence));
    Value::from(held).to_string()
}

fn entry(key: &Key, fence: Fence) -> Value {
    json!({ "key": key, "fence": fence })
}

/// Nothing, if there is something else in the variable.
fn inherited() -> Vec<Value> {
    let value = std::env::var(VARIABLE).ok();
    value.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}
