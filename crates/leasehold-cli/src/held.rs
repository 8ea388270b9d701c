//! The locks that the processes around us hold: those of every `run` that we are part of.

use leasehold::{Error, Fence, Key, Locks, Mode};
use serde_json::{Value, json};

/// Where a command finds the locks under which it runs: a JSON array, the outermost lock first.
pub(crate) const VARIABLE: &str = "LEASEHOLD_HELD";

/// What is held around us of the locks that we want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// Nothing.
    Nothing,
    /// Something that leaves room for us. Whoever stands in line for it waits for its holder, and
    /// so for us.
    Beside,
    /// This lock: whoever holds it waits for us, so that we would wait for ever.
    InTheWay(Key),
}

/// Looks whether the grants that are held around us are still there. A fence never comes back: a
/// lock that was lost or released meanwhile is not taken for them.
///
/// # Errors
///
/// The store's.
pub(crate) async fn around_us(locks: &Locks, keys: &[Key], mode: Mode) -> Result<Around, Error> {
    let inherited = inherited();
    let mut around = Around::Nothing;
    for key in keys.iter().filter(|key| inherited.iter().any(|entry| entry["key"] == key.as_str())) {
        let holders = locks.holders(key).await?;
        let ours: Vec<_> = holders.iter().filter(|info| inherited.contains(&entry(key, info.fence))).collect();
        let is_full = u32::try_from(ours.len()).unwrap_or(u32::MAX) >= mode.limit();
        if !ours.is_empty() && (is_full || ours.iter().any(|info| !info.mode.goes_with(mode))) {
            return Ok(Around::InTheWay(key.clone()));
        }
        if !ours.is_empty() {
            around = Around::Beside;
        }
    }
    Ok(around)
}

/// The variable of a command that runs under these locks too.
pub(crate) fn with(keys: &[Key], fence: Fence) -> String {
    let mut held = inherited();
    held.extend(keys.iter().map(|key| entry(key, fence)));
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
