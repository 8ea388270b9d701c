use std::collections::HashMap;
use std::time::Instant;

use redis::Value;
use serde::{Deserialize, Serialize};

use super::record::{Form, Found};
use super::{Redis, script};
use crate::backend::{ListPage, ListRequest, Record};
use crate::{Error, Fence, Operation, Timestamp};

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

/// What the script answers: the time, whether the cursor goes through the set of held locks, the
/// next cursor, what was found, how many wait for what, and names that have more.
type Answer = (u64, bool, String, Vec<Vec<u8>>, Vec<Value>, Vec<Vec<u8>>);

/// What one step found: locks by name, how many wait for them, and names that have more holders.
struct Step {
    found: Vec<(String, Form, Record)>,
    waiting: HashMap<String, u32>,
    more: Vec<String>,
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
            let step = self.step(&mut cursor, request.prefix(), count).await?;
            if step.found.is_empty() {
                count = (count * 2).min(STEP.1);
            }
            for (name, form, record) in step.found {
                if page.records.len() < limit {
                    if let Some(waiting) = step.waiting.get(&name) {
                        page.waiting.insert(record.key.clone(), *waiting);
                    }
                    page.records.push(record);
                } else {
                    cursor.leave(name, form, record.fence);
                }
            }
            cursor.leave_more(step.more);
        }
        page.next = cursor.to_text();
        Ok(page)
    }

    /// The live locks among the names left over, or else among those of the next step.
    async fn step(&self, cursor: &mut Cursor, prefix: &str, count: usize) -> Result<Step, Error> {
        let left = std::mem::take(&mut cursor.left);
        let names = &self.names;
        let (pattern, indexes) = (names.pattern(prefix), names.indexes());
        // Counters stay for ever, so names that they share are not looked for: indexes lead to all locks.
        let index_pattern = if names.pattern_is_narrow(prefix) { String::new() } else { names.index_pattern() };
        let (count, database) = (count.to_string(), format!("db{}:", self.server.database()));
        let at = cursor.step.clone().unwrap_or_default();
        let held = if cursor.held { "held" } else { "" };
        let mut arguments = vec![at.as_str(), held, &pattern, &count, &indexes, &index_pattern, &database];
        arguments.extend(left.iter().map(String::as_str));
        let start = format!("{}list", names.start());
        let (now, held, next, found, waiting, more): Answer =
            self.run(Operation::List, &script::LIST, &[&start], &arguments).await?;
        if left.is_empty() {
            cursor.step = Some(next).filter(|next| next != "0");
            cursor.held = held;
        }
        let now = Timestamp::from_millis(now);
        let waiting = waiting.chunks_exact(2).filter_map(|pair| match pair {
            [Value::BulkString(name), Value::Int(count)] => {
                Some((String::from_utf8(name.clone()).ok()?, u32::try_from(*count).ok()?))
            }
            _ => None,
        });
        Ok(Step {
            found: found.chunks_exact(3).filter_map(|found| self.ours(found, prefix, now)).collect(),
            waiting: waiting.collect(),
            more: more.into_iter().filter_map(|left| String::from_utf8(left).ok()).collect(),
        })
    }

    /// A live lock with a key that starts with `prefix`: its name, what it is, and the same as
    /// JSON. Anything else under our names is passed over.
    fn ours(&self, found: &[Vec<u8>], prefix: &str, now: Timestamp) -> Option<(String, Form, Record)> {
        let [name, form, raw] = found else { return None };
        let form = Form::of(form)?;
        let found = Found::parse(form, raw).ok()?;
        if !found.stored.is_live(now) || !found.stored.key.starts_with(prefix) {
            return None;
        }
        let record = found.into_record().ok()?;
        let name = std::str::from_utf8(name).ok()?;
        (self.names.lock(&record.key).ok()? == name).then(|| (name.to_owned(), form, record))
    }
}

/// Stands behind the name of a lock that several hold, before those of them that are meant. No name
/// has it.
const BEHIND: char = '\0';

/// The name of the lock in what is left over.
fn name_of(left: &str) -> &str {
    left.split(BEHIND).next().unwrap_or_default()
}

impl Cursor {
    /// Leaves a lock for the next page.
    fn leave(&mut self, name: String, form: Form, fence: Fence) {
        match form {
            Form::Record | Form::Place => self.left.push(name),
            Form::Grant => self.left.push(format!("{name}{BEHIND}={fence}")),
            // The first of them stands for all that follow.
            Form::Holder if self.left.last().is_some_and(|last| name_of(last) == name) => {}
            Form::Holder => self.left.push(format!("{name}{BEHIND}>{}", fence.get().saturating_sub(1))),
        }
    }

    /// Leaves those for the next page that a step did not get to.
    fn leave_more(&mut self, more: Vec<String>) {
        for left in more {
            if !self.left.iter().any(|other| name_of(other) == name_of(&left)) {
                self.left.push(left);
            }
        }
    }

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
