//! How held locks are shown: a table or a page for people, lines of JSON for programs. Never with
//! their lock ids.

use std::time::Duration;

use leasehold::{Holder, ListRequest, Locked, Locks, Metadata, Timestamp};
use serde_json::{Value, json};

use crate::escape::escape;
use crate::table::{Column, render};
use crate::text;

const HEAD: [Column; 6] = [
    Column { title: "KEY", may_shrink: true },
    Column { title: "HOLDER", may_shrink: true },
    Column { title: "HELD FOR", may_shrink: false },
    Column { title: "EXPIRES IN", may_shrink: false },
    Column { title: "FENCE", may_shrink: false },
    Column { title: "METADATA", may_shrink: true },
];

/// All the locks whose key starts with `prefix`, by key.
///
/// # Errors
///
/// The store's.
pub(crate) async fn list(locks: &Locks, prefix: &str) -> Result<Vec<Locked>, leasehold::Error> {
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
    Ok(held)
}

/// A line for each lock.
pub(crate) fn table(held: &[Locked], columns: Option<usize>) -> String {
    if held.is_empty() && columns.is_some() {
        return "no locks are held\n".to_owned();
    }
    let now = Timestamp::now();
    let rows: Vec<_> = held.iter().map(|locked| row(locked, now)).collect();
    render(&HEAD, &rows, columns)
}

fn row(locked: &Locked, now: Timestamp) -> [String; 6] {
    let (held_for, expires_in) = times(locked, now);
    [
        locked.key.as_str().to_owned(),
        locked.info.holder.as_ref().map_or("-", Holder::as_str).to_owned(),
        text::duration(held_for),
        text::duration(expires_in),
        locked.info.fence.to_string(),
        notes(&locked.info.metadata),
    ]
}

/// All about one lock, a line for each fact.
pub(crate) fn details(locked: &Locked) -> String {
    let row = row(locked, Timestamp::now());
    let since = text::moment(locked.info.acquired_at);
    let names = ["key", "holder", "held for", "expires in", "fence", "metadata"];
    let lines = names.iter().zip(row).filter(|(_, value)| !value.is_empty()).map(|(name, value)| match *name {
        "held for" => format!("{name:<12}{value}, since {since}\n"),
        _ => format!("{name:<12}{}\n", escape(&value)),
    });
    lines.collect()
}

/// The lock as an object.
pub(crate) fn json_object(locked: &Locked) -> Value {
    let (held_for, expires_in) = times(locked, Timestamp::now());
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

fn notes(metadata: &Metadata) -> String {
    let note = |(name, value): (&str, &Value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    };
    metadata.iter().map(note).collect::<Vec<_>>().join(" ")
}

/// The width of the terminal on stdout, if there is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
