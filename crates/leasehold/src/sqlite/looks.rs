//! What is told of locks to those who only look.

use std::collections::HashMap;

use rusqlite::params;

use super::error::translate;
use super::operations::Operations;
use super::placeholder;
use super::rows::{Held, KeyRow, Reserved, column, grant};
use crate::backend::{Inspected, ListPage, Record};
use crate::{Error, Fence, Key, ListRequest, LockId};

/// The most waiters of a key that are shown.
const MOST_WAITERS: usize = 1000;

impl Operations<'_> {
    /// The oldest grant of a key.
    pub(super) fn by_key(&self, key: &Key) -> Result<Option<Record>, Error> {
        Ok(self.holders(key, 1)?.pop())
    }

    pub(super) fn by_id(&self, id: &LockId) -> Result<Option<Record>, Error> {
        let found = self.find(include_str!("find_by_id.sql"), id.expose())?;
        match self.live(found) {
            Some(record) => Ok(Some(record)),
            None => Ok(self.grant_by_id(id)?.filter(|record| record.expires_at.is_live(self.now))),
        }
    }

    pub(super) fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        let waiters = self.first_in_line(key, MOST_WAITERS)?.into_iter().map(|place| place.waiter).collect();
        Ok(Inspected::new(self.holders(key, -1)?, waiters))
    }

    /// The live grants of a key, the oldest first; a negative number is for all of them.
    fn holders(&self, key: &Key, most: i64) -> Result<Vec<Record>, Error> {
        match self.find(include_str!("find.sql"), key.as_str())? {
            Some(KeyRow { held: Held::Otherwise(Reserved { kind, .. }), .. }) => {
                self.grants_beside(kind, key, self.dead_at(), most)
            }
            row => Ok(self.live(row).into_iter().collect()),
        }
    }

    pub(super) fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let (limit, prefix) = (request.page_size(), request.prefix());
        let (key, fence) = request.cursor().map_or(("", 0), place);
        let mut statement = self.prepare(include_str!("list.sql"))?;
        let mut rows = statement.query(params![self.dead_at(), prefix, key, fence]).map_err(translate)?;
        let mut records = Vec::new();
        // One more than fits tells whether there is a next page.
        while records.len() <= limit
            && let Some(row) = rows.next().map_err(translate)?
        {
            let key: String = row.get(0).map_err(translate)?;
            if !key.starts_with(prefix) {
                break;
            }
            let lock_id: String = row.get(1).map_err(translate)?;
            if placeholder::of(&lock_id, &key).is_none() {
                records.push(grant(row).map_err(translate)?);
            }
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| format!("{} {}", last.fence, last.key.as_str()));
        let waiting = self.waiting(&records)?;
        Ok(ListPage::new(records, next).with_waiting(waiting))
    }

    /// How many wait for the keys of these grants, where anybody does.
    fn waiting(&self, records: &[Record]) -> Result<HashMap<Key, u32>, Error> {
        let mut waiting = HashMap::new();
        if self.first("SELECT 1 FROM line LIMIT 1", [], |_| Ok(()))?.is_none() {
            return Ok(waiting);
        }
        let sql = "SELECT count(*) FROM line WHERE key = ?1 AND until_ms > ?2";
        for Record { key, .. } in records {
            if !waiting.contains_key(key) {
                let number = self.first(sql, params![key.as_str(), self.now_millis()], |row| row.get(0))?;
                waiting.insert(key.clone(), number.unwrap_or(0));
            }
        }
        waiting.retain(|_, number| *number > 0);
        Ok(waiting)
    }
}

/// The key and the fence after which a page starts.
fn place(cursor: &str) -> (&str, i64) {
    let place = cursor.split_once(' ').and_then(|(fence, key)| Some((key, fence.parse::<Fence>().ok()?)));
    place.map_or((cursor, i64::MAX), |(key, fence)| (key, column(fence.get())))
}
