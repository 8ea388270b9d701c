use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Redis, record, script};
use crate::backend::{ListPage, ListRequest, Record};
use crate::{Error, Operation, Timestamp};

/// The least and the most names that one step looks at. The server needs about a millisecond for
/// the most.
const STEP: (usize, usize) = (16, 2000);

/// The most steps for one page: a page may come out short in a server full of other things, but
/// never takes long.
const STEPS: usize = 64;

/// Where a page ended.
#[derive(Default, Serialize, Deserialize)]
struct Cursor {
    /// The server's own cursor, for the next step. None after the last one.
    step: Option<String>,
    /// Whether it goes through the set of held locks instead of all names: the first step finds out
    /// whether it may.
    held: bool,
    /// Names that the last step yielded, and for which there was no room.
    left: Vec<String>,
}

impl Redis {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let mut cursor = match request.cursor() {
            None => Cursor { step: Some("0".to_owned()), ..Cursor::default() },
            Some(text) => Cursor::parse(text, self.names.start())?,
        };
        let limit = request.page_size();
        let mut page = ListPage::default();
        let mut count = limit.clamp(STEP.0, STEP.1);
        let started = Instant::now();
        for step in 0..STEPS {
            // A slow server is asked for the rest with the next page.
            if step > 0 && started.elapsed() > self.server.timeout / 2 {
                break;
            }
            let room = limit - page.records.len();
            if room == 0 || (cursor.step.is_none() && cursor.left.is_empty()) {
                break;
            }
            let found = self.step(&mut cursor, request.prefix(), count).await?;
            if found.is_empty() {
                count = (count * 2).min(STEP.1);
            }
            for (name, record) in found {
                if page.records.len() < limit {
                    page.records.push(record);
                } else {
                    cursor.left.push(name);
                }
            }
        }
        page.next = cursor.to_text();
        Ok(page)
    }

    /// The live locks among the names left over, or else among those of the next step.
    async fn step(&self, cursor: &mut Cursor, prefix: &str, count: usize) -> Result<Vec<(String, Record)>, Error> {
        let left = std::mem::take(&mut cursor.left);
        let names = &self.names;
        let (pattern, indexes) = (names.pattern(prefix), names.indexes());
        // Counters stay for ever, so names that they share are not looked for: indexes lead to all locks.
        let index_pattern = if names.pattern_is_narrow(prefix) { String::new() } else { names.index_pattern() };
        let set = names.held();
        let (count, database) = (count.to_string(), format!("db{}:", self.server.database()));
        let at = cursor.step.clone().unwrap_or_default();
        let held = if cursor.held { "held" } else { "" };
        let mut arguments = vec![at.as_str(), held, &pattern, &count, &indexes, &index_pattern, &database, &set];
        arguments.extend(left.iter().map(String::as_str));
        let start = format!("{}list", names.start());
        let (now, held, next, found): (u64, bool, String, Vec<Vec<u8>>) =
            self.run(Operation::List, &script::LIST, &[&start], &arguments).await?;
        if left.is_empty() {
            cursor.step = Some(next).filter(|next| next != "0");
            cursor.held = held;
        }
        let now = Timestamp::from_millis(now);
        Ok(found.chunks_exact(2).filter_map(|pair| self.ours(&pair[0], &pair[1], prefix, now)).collect())
    }

    /// A live lock with a key that starts with `prefix`. Anything else under our names is passed
    /// over.
    fn ours(&self, name: &[u8], raw: &[u8], prefix: &str, now: Timestamp) -> Option<(String, Record)> {
        let stored = record::parse(raw).ok()?;
        if !stored.is_live(now) || !stored.key.starts_with(prefix) {
            return None;
        }
        let record = record::into_record(stored).ok()?;
        let name = std::str::from_utf8(name).ok()?;
        (self.names.lock(&record.key).ok()? == name).then(|| (name.to_owned(), record))
    }
}

impl Cursor {
    fn parse(text: &str, start: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid("this is not where a page ended").during(Operation::List);
        let cursor: Cursor = serde_json::from_str(text).map_err(|_| wrong())?;
        let digits =
            |step: &String| !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) && step.parse::<u64>().is_ok();
        if !cursor.step.iter().all(digits) || !cursor.left.iter().all(|name| name.starts_with(start)) {
            return Err(wrong());
        }
        Ok(cursor)
    }

    fn to_text(&self) -> Option<String> {
        if self.step.is_none() && self.left.is_empty() {
            return None;
        }
        serde_json::to_string(self).ok()
    }
}
