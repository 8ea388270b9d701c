//! How held locks are shown: a table or a page for people, lines of JSON for programs. Never with
//! their lock ids.

use std::time::Duration;

use leasehold::{Holder, ListRequest, Locked, Locks, Metadata, Timestamp};
use serde_json::{Value, json};

use crate::escape::escape;
use crate::notes;
use crate::table::{Column, render};
use crate::text;

const COLUMNS: usize = 9;

/// What matters least when the terminal is narrow is left out first; never the key.
const HEAD: [Column; COLUMNS] = [
    Column { title: "KEY", may_shrink: false, leave_out: 0 },
    Column { title: "HOLDER", may_shrink: true, leave_out: 1 },
    Column { title: "HELD FOR", may_shrink: false, leave_out: 2 },
    Column { title: "EXPIRES IN", may_shrink: false, leave_out: 5 },
    Column { title: "FENCE", may_shrink: false, leave_out: 7 },
    Column { title: "PID", may_shrink: false, leave_out: 3 },
    Column { title: "USER", may_shrink: false, leave_out: 6 },
    Column { title: "COMMAND", may_shrink: true, leave_out: 4 },
    Column { title: "METADATA", may_shrink: true, leave_out: 8 },
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
    held.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
    // A lock that changed hands while the pages were read may be on two of them.
    held.dedup_by(|a, b| a.key == b.key);
    Ok(Look { held, now: locks.now().await? })
}

/// A line for each lock.
pub(crate) fn table(look: &Look, columns: Option<usize>) -> String {
    let rows: Vec<_> = look.held.iter().map(|locked| row(locked, look.now)).collect();
    render(&HEAD, &rows, columns)
}

fn row(locked: &Locked, now: Timestamp) -> [String; COLUMNS] {
    let (held_for, expires_in) = times(locked, now);
    let metadata = &locked.info.metadata;
    let [pid, user, command] = OWN_COLUMNS.map(|name| metadata.get(name).map(note_text).unwrap_or_default());
    [
        locked.key.as_str().to_owned(),
        locked.info.holder.as_ref().map_or("-", Holder::as_str).to_owned(),
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
    let row = row(locked, now);
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
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "key": locked.key,
        "holder": locked.info.holder,
        "acquired_at_ms": locked.info.acquired_at,
        "expires_at_ms": locked.info.expires_at,
        "held_for_ms": millis(held_for),
        "expires_in_ms": millis(expires_in),
        "fence": locked.info.fence,
        "metadata": locked.info.metadata,
    })
}

fn times(locked: &Locked, now: Timestamp) -> (Duration, Duration) {
    (now.since(locked.info.acquired_at), locked.info.expires_at.since(now))
}

fn other_notes(metadata: &Metadata) -> String {
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
