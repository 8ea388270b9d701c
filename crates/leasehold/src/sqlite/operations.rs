use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::database::Database;
use super::error::{is_unique_violation, translate};
use crate::backend::{Absence, Acquire, AcquireRequest, Extend, ForceRelease, ListPage, Record, Release};
use crate::remote::stored::unreadable;
use crate::{Error, Fence, Holder, Key, ListRequest, LockId, Loss, Metadata, Timestamp, Ttl};

/// What an operation wants to tell others once its transaction is committed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Freed(Key),
    Taken(TakenLock, Loss),
    Granted(GrantedLock),
}

/// A lock that was granted, by what everybody may know of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GrantedLock {
    pub(super) key: Key,
    pub(super) fence: Fence,
    pub(super) holder: Option<Holder>,
}

/// A lock that was taken from its holder, by what everybody may know of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TakenLock {
    pub(super) key: Key,
    pub(super) fence: Fence,
}

/// The operations of a store within a transaction that somebody else began and will commit.
pub(super) struct Operations<'a> {
    pub(super) database: &'a Database,
    pub(super) now: Timestamp,
    pub(super) messages: &'a mut Vec<Message>,
    /// Whether there are listeners, once that has been looked up.
    pub(super) listeners: Option<bool>,
}

/// A row of the table: its record if somebody holds it, and its fence in any case.
struct Found {
    record: Option<Record>,
    fence: Fence,
}

impl Operations<'_> {
    pub(super) fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let found = self.find(include_str!("find.sql"), request.key.as_str())?;
        let last = found.as_ref().map(|found| found.fence);
        let mut stolen = None;
        if let Some(record) = self.live(found) {
            if record.lock_id == request.lock_id {
                return Ok(Acquire::Granted(record.grant()));
            }
            if !request.steal.allows(&request.holder, &record, self.now) {
                return Ok(Acquire::Held(record.contention(self.now)));
            }
            stolen = Some(TakenLock { key: record.key, fence: record.fence });
        }
        let record = Record {
            key: request.key.clone(),
            lock_id: request.lock_id,
            fence: Fence::next(last, self.now)?,
            acquired_at: Timestamp::from_millis(self.now.as_millis()),
            expires_at: self.now.expiry(request.ttl),
            holder: Some(request.holder.clone()),
            metadata: request.metadata.clone(),
        };
        self.grant(&record)?;
        self.messages.extend(stolen.map(|victim| Message::Taken(victim, Loss::Stolen)));
        if self.has_listeners()? {
            let Record { key, fence, holder, .. } = record.clone();
            self.messages.push(Message::Granted(GrantedLock { key, fence, holder }));
        }
        Ok(Acquire::Granted(record.grant()))
    }

    fn grant(&self, record: &Record) -> Result<(), Error> {
        let metadata = (!record.metadata.is_empty()).then(|| record.metadata.to_json());
        let granted = self.prepare(include_str!("grant.sql"))?.execute(params![
            record.key.as_str(),
            record.lock_id.expose(),
            column(record.fence.get()),
            column(record.acquired_at.as_millis()),
            column(record.expires_at.as_millis()),
            record.holder.as_ref().map(Holder::as_str),
            metadata,
        ]);
        match granted {
            Ok(_) => Ok(()),
            Err(error) if is_unique_violation(&error) => Err(Error::id_in_use()),
            Err(error) => Err(translate(error)),
        }
    }

    pub(super) fn release(&mut self, id: &LockId) -> Result<Release, Error> {
        // The key is of interest only to listeners, and there seldom are any.
        let key = if self.has_listeners()? { self.key_of(id)? } else { None };
        let released = self
            .prepare(include_str!("release.sql"))?
            .execute(params![id.expose(), self.dead_at()])
            .map_err(translate)?;
        if released == 0 {
            return Ok(Release::Absent(self.absence(id)?));
        }
        self.messages.extend(key.map(Message::Freed));
        Ok(Release::Released)
    }

    fn key_of(&self, id: &LockId) -> Result<Option<Key>, Error> {
        let mut statement = self.prepare(include_str!("key_of.sql"))?;
        let key: Option<String> = statement.query_row([id.expose()], |row| row.get(0)).optional().map_err(translate)?;
        key.as_deref().map(Key::new).transpose()
    }

    /// Whether anybody at all wants to hear of anything. Looked up once for all the operations of a
    /// transaction.
    fn has_listeners(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.listeners {
            return Ok(known);
        }
        let sql = "SELECT EXISTS (SELECT 1 FROM listeners)";
        let found = self.prepare(sql)?.query_row([], |row| row.get(0)).map_err(translate)?;
        self.listeners = Some(found);
        Ok(found)
    }

    pub(super) fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        let expires_at = self.now.expiry(ttl);
        let extended = self
            .prepare(include_str!("extend.sql"))?
            .execute(params![id.expose(), self.dead_at(), column(expires_at.as_millis())])
            .map_err(translate)?;
        if extended == 0 {
            return Ok(Extend::Absent(self.absence(id)?));
        }
        Ok(Extend::Extended { expires_at })
    }

    pub(super) fn force_release(&mut self, key: &Key) -> Result<ForceRelease, Error> {
        let found = self.find(include_str!("find.sql"), key.as_str())?;
        let Some(record) = self.live(found) else {
            return Ok(ForceRelease::Absent);
        };
        self.prepare(include_str!("force_release.sql"))?.execute([key.as_str()]).map_err(translate)?;
        self.messages.push(Message::Freed(key.clone()));
        let lock = TakenLock { key: record.key.clone(), fence: record.fence };
        self.messages.push(Message::Taken(lock, Loss::ForceReleased));
        Ok(ForceRelease::Released(record))
    }

    pub(super) fn by_key(&self, key: &Key) -> Result<Option<Record>, Error> {
        Ok(self.live(self.find(include_str!("find.sql"), key.as_str())?))
    }

    pub(super) fn by_id(&self, id: &LockId) -> Result<Option<Record>, Error> {
        Ok(self.live(self.find(include_str!("find_by_id.sql"), id.expose())?))
    }

    pub(super) fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        let limit = request.page_size();
        let mut statement = self.prepare(include_str!("list.sql"))?;
        // One more than fits tells whether there is a next page.
        let wanted = params![self.dead_at(), request.prefix(), request.cursor(), column(limit as u64 + 1)];
        let rows = statement.query_map(wanted, found).map_err(translate)?;
        let mut records = Vec::new();
        for row in rows {
            let record = row.map_err(translate)?.record;
            match record {
                Some(record) if record.key.as_str().starts_with(request.prefix()) => records.push(record),
                _ => break,
            }
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| last.key.as_str().to_owned());
        Ok(ListPage { records, next })
    }

    pub(super) fn listen(&mut self, topic: &str, address: &str) -> Result<(), Error> {
        // A subscriber hears of everything after its own operation, also in the same transaction.
        self.listeners = Some(true);
        let sql = "INSERT OR IGNORE INTO listeners (topic, address) VALUES (?1, ?2)";
        self.prepare(sql)?.execute([topic, address]).map(drop).map_err(translate)
    }

    pub(super) fn unlisten(&self, topic: &str, address: &str) -> Result<(), Error> {
        let sql = "DELETE FROM listeners WHERE topic = ?1 AND address = ?2";
        self.prepare(sql)?.execute([topic, address]).map(drop).map_err(translate)
    }

    /// Removes the row of a key that nobody holds, fence and all. Only the key of an examination,
    /// which nobody else uses, may be forgotten: the trigger keeps all others.
    pub(super) fn forget(&self, key: &Key) -> Result<(), Error> {
        let connection = &self.database.connection;
        let triggers = |on| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, on).map_err(translate);
        triggers(false)?;
        let sql = "DELETE FROM locks WHERE key = ?1 AND lock_id IS NULL";
        let forgotten = connection.execute(sql, [key.as_str()]).map(drop).map_err(translate);
        triggers(true)?;
        forgotten
    }

    fn absence(&self, id: &LockId) -> Result<Absence, Error> {
        let found = self.find(include_str!("find_by_id.sql"), id.expose())?;
        Ok(if found.is_some() { Absence::Expired } else { Absence::NotFound })
    }

    fn find(&self, sql: &'static str, by: &str) -> Result<Option<Found>, Error> {
        self.prepare(sql)?.query_row([by], found).optional().map_err(translate)
    }

    fn live(&self, found: Option<Found>) -> Option<Record> {
        found?.record.filter(|record| record.expires_at.is_live(self.now))
    }

    /// A lock that expires at this time or before is dead.
    fn dead_at(&self) -> i64 {
        column(self.now.latest_dead().as_millis())
    }

    fn prepare(&self, sql: &'static str) -> Result<CachedStatement<'_>, Error> {
        self.database.connection.prepare_cached(sql).map_err(translate)
    }
}

/// SQLite's integers are signed. Ours stay far below the limit.
pub(super) fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Reads a row of `key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata`.
fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    let number =
        |index| row.get::<_, i64>(index).and_then(|value| u64::try_from(value).map_err(|error| invalid(index, error)));
    let fence = Fence::new(number(2)?).map_err(|error| invalid(2, error))?;
    let Some(lock_id) = row.get_ref(1)?.as_str_or_null()? else {
        return Ok(Found { record: None, fence });
    };
    let holder = row.get_ref(5)?.as_str_or_null()?.map(Holder::new).transpose();
    let metadata = row.get_ref(6)?.as_str_or_null()?.map(serde_json::from_str::<Metadata>).transpose();
    let record = Record {
        key: Key::new(row.get_ref(0)?.as_str()?).map_err(|error| invalid(0, error))?,
        lock_id: lock_id.parse().map_err(|error| invalid(1, error))?,
        fence,
        acquired_at: Timestamp::from_millis(number(3)?),
        expires_at: Timestamp::from_millis(number(4)?),
        holder: holder.map_err(|error| invalid(5, error))?,
        metadata: metadata.map_err(|error| invalid(6, unreadable(&error)))?.unwrap_or_default(),
    };
    Ok(Found { record: Some(record), fence })
}

fn invalid(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
}
