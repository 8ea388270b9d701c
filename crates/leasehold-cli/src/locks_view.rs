//! How held locks are shown: a table or a page for people, lines of JSON for programs. Never with
//! their lock ids.

use std::collections::HashSet;
use std::time::Duration;

use leasehold::{Holder, ListRequest, Locked, Locks, Metadata, Mode, Timestamp};
use serde_json::{Value, json};

use crate::escape::escape;
use crate::table::{Column, render};
use crate::{mode, notes, text};

const COLUMNS: usize = 11;

/// What matters least when the terminal is narrow is left out first; never the key.
const HEAD: [Column; COLUMNS] = [
    Column { title: "KEY", may_shrink: false, leave_out: 0 },
    Column { title: "HOLDER", may_shrink: true, leave_out: 1 },
    Column { title: "MODE", may_shrink: false, leave_out: 4 },
    Column { title: "WAITING", may_shrink: false, leave_out: 3 },
    Column { title: "HELD FOR", may_shrink: false, leave_out: 2 },
    Column { title: "EXPIRES IN", may_shrink: false, leave_out: 7 },
    Column { title: "FENCE", may_shrink: false, leave_out: 9 },
    Column { title: "PID", may_shrink: false, leave_out: 5 },
    Column { title: "USER", may_shrink: false, leave_out: 8 },
    Column { title: "COMMAND", may_shrink: true, leave_out: 6 },
    Column { title: "METADATA", may_shrink: true, leave_out: 10 },
];

/// The notes that have columns of their own.
const OWN_COLUMNS: [&str; 3] = [notes::PID, notes::USER, notes::COMMAND];

/// What there was to see, and the store's time then.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) held: Vec<Locked>,
    pub(crate) now: Timestamp,
}

/// All the locks whose key starts with `prefix`, by key.
///
/// # Errors
///
/// The store's.
pub(crate) async fn list(locks: &Locks, prefix: &str) -> Result<Look, leasehold::Error> {
    let mut request = ListRequest::new(prefix).with_page_size(ListRequest::MAX_PAGE_SIZE);
    let mut held = Vec::new();
    loop {
        let page = locks.list(&request).await?;
        held.extend(page.locks);
        match page.next {
            Some(next) => request = request.with_cursor(next),
            None => break,
        }
    }
    Ok(Look { held: latest(held), now: locks.now().await? })
}

/// By key, and by grant. A lock that changed hands while the pages were read may be on two of them:
/// of two grants that cannot be held together, the later one counts.
fn latest(mut held: Vec<Locked>) -> Vec<Locked> {
    held.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()).then(b.info.fence.cmp(&a.info.fence)));
    let mut latest: Vec<Locked> = Vec::with_capacity(held.len());
    let (mut last_mode, mut slots) = (None, HashSet::new());
    for locked in held {
        if latest.last().is_none_or(|later| later.key != locked.key) {
            (last_mode, slots) = (Some(locked.info.mode), locked.info.slot.into_iter().collect());
            latest.push(locked);
            continue;
        }
        let is_listed = latest.last().is_some_and(|later| later.info.fence == locked.info.fence);
        let goes_with = last_mode.is_some_and(|later| locked.info.mode.goes_with(later));
        if !is_listed && goes_with && locked.info.slot.is_none_or(|slot| slots.insert(slot)) {
            latest.push(locked);
        }
    }
    latest.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()).then(a.info.fence.cmp(&b.info.fence)));
    latest
}

/// A line for each lock. If all are exclusive, as without readers and permits, that is not said.
pub(crate) fn table(look: &Look, columns: Option<usize>) -> String {
    let with_mode = look.held.iter().any(|locked| locked.info.mode != Mode::Exclusive);
    let rows: Vec<_> = look.held.iter().map(|locked| row(locked, look.now, with_mode)).collect();
    render(&HEAD, &rows, columns)
}

fn row(locked: &Locked, now: Timestamp, with_mode: bool) -> [String; COLUMNS] {
    let (held_for, expires_in) = times(locked, now);
    let metadata = &locked.info.metadata;
    let [pid, user, command] = own_notes(metadata);
    [
        locked.key.as_str().to_owned(),
        locked.info.holder.as_ref().map_or("-", Holder::as_str).to_owned(),
        if with_mode { mode::text(locked.info.mode, locked.info.slot) } else { String::new() },
        if locked.waiting > 0 { locked.waiting.to_string() } else { String::new() },
        text::duration(held_for),
        text::duration(expires_in),
        locked.info.fence.to_string(),
        pid,
        user,
        command,
        other_notes(metadata),
    ]
}

/// All about one lock, a line for each fact.
pub(crate) fn details(locked: &Locked, now: Timestamp) -> String {
    let row = row(locked, now, locked.info.mode != Mode::Exclusive);
    let since = text::moment(locked.info.acquired_at);
    let lines = HEAD.iter().map(|column| column.title.to_ascii_lowercase()).zip(row);
    let lines = lines.filter(|(_, value)| !value.is_empty()).map(|(name, value)| match name.as_str() {
        "held for" => format!("{name:<12}{value}, since {since}\n"),
        _ => format!("{name:<12}{}\n", escape(&value)),
    });
    lines.collect()
}

/// The lock as an object.
pub(crate) fn json_object(locked: &Locked, now: Timestamp) -> Value {
    let (held_for, expires_in) = times(locked, now);
    let mut object = json!({
        "key": locked.key,
        "holder": locked.info.holder,
        "acquired_at_ms": locked.info.acquired_at,
        "expires_at_ms": locked.info.expires_at,
        "held_for_ms": millis(held_for),
        "expires_in_ms": millis(expires_in),
        "fence": locked.info.fence,
        "waiting": locked.waiting,
        "metadata": locked.info.metadata,
    });
    mode::add_fields(&mut object, locked.info.mode, locked.info.slot);
    object
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn times(locked: &Locked, now: Timestamp) -> (Duration, Duration) {
    (now.since(locked.info.acquired_at), locked.info.expires_at.since(now))
}

/// The notes that `run` makes, for columns of their own.
pub(crate) fn own_notes(metadata: &Metadata) -> [String; 3] {
    OWN_COLUMNS.map(|name| metadata.get(name).map(note_text).unwrap_or_default())
}

/// All other notes.
pub(crate) fn other_notes(metadata: &Metadata) -> String {
    let others = metadata.iter().filter(|(name, _)| !OWN_COLUMNS.contains(name));
    others.map(|(name, value)| format!("{name}={}", note_text(value))).collect::<Vec<_>>().join(" ")
}

fn note_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The width of the terminal on stdout, if there is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use leasehold::{Key, LockInfo};

    use super::*;

    fn locked(key: &str, fence: u64, mode: &str, slot: Option<u16>) -> Locked {
        let info: LockInfo = serde_json::from_value(json!({
            "key_hash": "0".repeat(24),
            "lock_id_hash": "0".repeat(24),
            "fence": format!("{fence:015}"),
            "acquired_at": 0,
            "expires_at": 0,
            "holder": null,
            "metadata": {},
            "mode": if mode == "permit" { json!({ "permit": { "of": 3 } }) } else { json!(mode) },
            "slot": slot,
        }))
        .unwrap();
        Locked::new(Key::new(key).unwrap(), info)
    }

    #[test]
    fn all_who_hold_a_key_together_are_listed_but_nobody_whom_another_has_followed() {
        let held = vec![
            locked("b", 3, "exclusive", None),
            locked("b", 1, "exclusive", None),
            locked("r", 4, "shared", None),
            locked("a", 9, "exclusive", None),
            locked("r", 2, "shared", None),
            locked("r", 2, "shared", None),
            locked("r", 1, "exclusive", None),
            locked("p", 5, "permit", Some(1)),
            locked("p", 6, "permit", Some(0)),
            locked("p", 4, "permit", Some(0)),
        ];
        let listed: Vec<_> = latest(held).iter().map(|it| format!("{} {}", it.key.as_str(), it.info.fence)).collect();
        let number = |key: &str, fence: u64| format!("{key} {fence:015}");
        assert_eq!(
            listed,
            [number("a", 9), number("b", 3), number("p", 5), number("p", 6), number("r", 2), number("r", 4)]
        );
    }
}
