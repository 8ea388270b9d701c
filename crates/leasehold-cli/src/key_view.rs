//! How all who have to do with one key are shown: who holds it, and who stands in line.

use leasehold::{Holder, Key, KeyInfo, Locked, Timestamp, WaiterInfo};
use serde_json::{Value, json};

use crate::escape::escape;
use crate::locks_view::{details, json_object, millis, other_notes, own_notes};
use crate::table::{Column, render};
use crate::{mode, text};

/// Nobody's place is left out, and nothing is cut: this is where all is shown.
const LINE: [Column; 9] = [
    Column { title: "IN LINE", may_shrink: false, leave_out: 0 },
    Column { title: "HOLDER", may_shrink: true, leave_out: 1 },
    Column { title: "MODE", may_shrink: false, leave_out: 2 },
    Column { title: "WAITING FOR", may_shrink: false, leave_out: 3 },
    Column { title: "SINCE", may_shrink: false, leave_out: 4 },
    Column { title: "PID", may_shrink: false, leave_out: 5 },
    Column { title: "USER", may_shrink: false, leave_out: 6 },
    Column { title: "COMMAND", may_shrink: true, leave_out: 7 },
    Column { title: "METADATA", may_shrink: true, leave_out: 8 },
];

/// What a store has of a key, and its time then.
#[derive(Clone, Debug)]
pub(crate) struct KeyView {
    key: Key,
    info: KeyInfo,
    now: Timestamp,
}

impl KeyView {
    /// None if nobody holds the key, and nobody waits for it.
    pub(crate) fn new(key: Key, info: KeyInfo, now: Timestamp) -> Option<Self> {
        let is_something = !info.holders.is_empty() || !info.waiters.is_empty();
        is_something.then_some(Self { key, info, now })
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.info.holders.is_empty()
    }

    /// For people: a page for each holder, and a table of the line.
    pub(crate) fn text(&self) -> String {
        let mut parts: Vec<_> = self.locks(0).map(|locked| details(&locked, self.now)).collect();
        if parts.is_empty() {
            parts.push(format!("{:<12}{}\n", "key", escape(self.key.as_str())));
        }
        if !self.info.waiters.is_empty() {
            let rows: Vec<_> = self.info.waiters.iter().enumerate().map(|(at, waiter)| self.row(at, waiter)).collect();
            parts.push(render(&LINE, &rows, None));
        }
        parts.join("\n")
    }

    /// For programs: the fields of the oldest lock, all the locks, and the line.
    pub(crate) fn object(&self) -> Value {
        let waiting = u32::try_from(self.info.waiters.len()).unwrap_or(u32::MAX);
        let holders: Vec<_> = self.locks(waiting).map(|locked| json_object(&locked, self.now)).collect();
        let mut object = holders.first().cloned().unwrap_or_else(|| json!({ "key": self.key }));
        object["waiting"] = waiting.into();
        object["holders"] = holders.into();
        let waiters = self.info.waiters.iter().enumerate().map(|(at, waiter)| self.waiter_object(at, waiter));
        object["waiters"] = waiters.collect();
        object
    }

    fn locks(&self, waiting: u32) -> impl Iterator<Item = Locked> {
        self.info.holders.iter().map(move |info| Locked::new(self.key.clone(), info.clone()).with_waiting(waiting))
    }

    fn row(&self, at: usize, waiter: &WaiterInfo) -> [String; 9] {
        let [pid, user, command] = own_notes(&waiter.metadata);
        [
            (at + 1).to_string(),
            waiter.holder.as_ref().map_or("-", Holder::as_str).to_owned(),
            mode::text(waiter.mode, None),
            text::duration(self.now.since(waiter.since)),
            text::moment(waiter.since),
            pid,
            user,
            command,
            other_notes(&waiter.metadata),
        ]
    }

    fn waiter_object(&self, at: usize, waiter: &WaiterInfo) -> Value {
        json!({
            "place": at,
            "holder": waiter.holder,
            "mode": mode::name(waiter.mode),
            "permits": mode::permits(waiter.mode),
            "since_ms": waiter.since,
            "until_ms": waiter.until,
            "waiting_for_ms": millis(self.now.since(waiter.since)),
            "metadata": waiter.metadata,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    #[test]
    fn a_line_for_a_lock_that_nobody_holds_is_shown() {
        let waiter = json!({
            "key_hash": "0".repeat(24),
            "lock_id_hash": "0".repeat(24),
            "mode": "shared",
            "since": 1_000,
            "until": 9_000,
            "holder": "next",
            "metadata": { "pid": 7, "order": "17" },
        });
        let info: KeyInfo = serde_json::from_value(json!({ "holders": [], "waiters": [waiter] })).unwrap();
        let view = KeyView::new(key(), info, Timestamp::from_millis(3_000)).unwrap();
        assert!(!view.is_held());
        let rows = "IN LINE  HOLDER  MODE    WAITING FOR  SINCE                 PID  METADATA\n\
                    1        next    shared  2s           1970-01-01T00:00:01Z  7    order=17\n";
        assert_eq!(view.text(), format!("key         k\n\n{rows}"));
        let object = view.object();
        assert_eq!((&object["key"], &object["waiting"], &object["holders"]), (&"k".into(), &1.into(), &json!([])));
        assert_eq!(
            (&object["waiters"][0]["place"], &object["waiters"][0]["waiting_for_ms"]),
            (&0.into(), &2000.into())
        );
    }

    #[test]
    fn there_is_nothing_to_show_of_a_key_that_nobody_wants() {
        assert!(KeyView::new(key(), KeyInfo::default(), Timestamp::from_millis(0)).is_none());
    }
}
