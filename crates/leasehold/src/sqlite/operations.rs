//! What is decided about locks that are held by one alone and that nobody waits for: nearly all.
//! The others are in `crowd.rs`.

use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, OptionalExtension, Params, Row, params};

use super::bus::DatagramSender;
use super::database::Database;
use super::error::{is_unique_violation, translate};
use super::placeholder;
use super::rows::{Held, KeyRow, column, key_row};
use crate::backend::{Absence, Acquire, AcquireRequest, Extend, Line, Mode, Record, Release};
use crate::{Error, Fence, Holder, Key, LockId, Loss, Timestamp, Ttl};

/// What an operation wants to tell others once its transaction is committed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Freed(Key),
    /// It is the turn of this lock id.
    Called(LockId),
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
    /// To find out who is still there.
    pub(super) sender: &'a mut DatagramSender,
    pub(super) now: Timestamp,
    pub(super) messages: &'a mut Vec<Message>,
    /// What there is, once that has been looked up.
    pub(super) present: Option<Present>,
}

/// Which tables have rows. Most locks need no more than to know that they have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    pub(super) listeners: bool,
    pub(super) waiters: bool,
    pub(super) grants: bool,
}

impl Operations<'_> {
    pub(super) fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let found = self.find(include_str!("find.sql"), request.key.as_str())?;
        let mut stolen = None;
        let mut crowded = request.mode != Mode::Exclusive;
        match found.as_ref().map(|row| &row.held) {
            None | Some(Held::Nobody) => {}
            Some(Held::Otherwise(_)) => crowded = true,
            Some(Held::Plain(record)) if record.expires_at.is_live(self.now) => {
                if record.lock_id == request.lock_id {
                    return Ok(Acquire::Granted(record.grant()));
                }
                if request.steal.allows(&request.holder, record, self.now) {
                    stolen = Some(TakenLock { key: record.key.clone(), fence: record.fence });
                } else if matches!(request.line, Line::Join { .. }) {
                    crowded = true;
                } else {
                    return Ok(Acquire::Held(record.contention(self.now)));
                }
            }
            Some(Held::Plain(_)) => {}
        }
        let present = self.present()?;
        if crowded || ((present.waiters || present.grants) && self.around(request)?.is_somebody()) {
            return self.acquire_in_crowd(request, found);
        }
        let record = Record {
            key: request.key.clone(),
            lock_id: request.lock_id,
            fence: Fence::next(found.map(|row| row.fence), self.now)?,
            acquired_at: self.now.whole_millis(),
            expires_at: self.now.expiry(request.ttl),
            holder: Some(request.holder.clone()),
            metadata: request.metadata.clone(),
            mode: Mode::Exclusive,
            slot: None,
        };
        match self.write_lock(&record) {
            Ok(()) => {}
            Err(error) if is_unique_violation(&error) => return Err(Error::id_in_use()),
            Err(error) => return Err(translate(error)),
        }
        self.messages.extend(stolen.map(|victim| Message::Taken(victim, Loss::Stolen)));
        self.tell_granted(&record.key, record.fence, record.holder.as_ref())?;
        Ok(Acquire::Granted(record.grant()))
    }

    /// Makes this the lock of its key.
    pub(super) fn write_lock(&self, record: &Record) -> rusqlite::Result<()> {
        let metadata = (!record.metadata.is_empty()).then(|| record.metadata.to_json());
        let values = params![
            record.key.as_str(),
            record.lock_id.expose(),
            column(record.fence.get()),
            column(record.acquired_at.as_millis()),
            column(record.expires_at.as_millis()),
            record.holder.as_ref().map(Holder::as_str),
            metadata,
        ];
        self.database.connection.prepare_cached(include_str!("grant.sql"))?.execute(values).map(drop)
    }

    pub(super) fn tell_granted(&mut self, key: &Key, fence: Fence, holder: Option<&Holder>) -> Result<(), Error> {
        if self.present()?.listeners {
            let lock = GrantedLock { key: key.clone(), fence, holder: holder.cloned() };
            self.messages.push(Message::Granted(lock));
        }
        Ok(())
    }

    pub(super) fn release(&mut self, id: &LockId) -> Result<Release, Error> {
        let present = self.present()?;
        // The key is of interest only to listeners and waiters, and there seldom are any.
        let key = if present.listeners || present.waiters { self.key_of(id)? } else { None };
        if let Some(key) = &key
            && present.waiters
            && self.has_line(key)?
        {
            return self.release_in_crowd(key, id);
        }
        if self.is_placeholder(id)? {
            return Ok(Release::Absent(Absence::NotFound));
        }
        let released = self.execute(include_str!("release.sql"), params![id.expose(), self.dead_at()])?;
        if released > 0 {
            self.messages.extend(key.map(Message::Freed));
            return Ok(Release::Released);
        }
        match key {
            None if present.waiters || present.grants => self.release_elsewhere(id),
            _ => Ok(Release::Absent(self.absence(id)?)),
        }
    }

    /// The key whose lock, held by one alone, a lock id has, live or dead.
    fn key_of(&self, id: &LockId) -> Result<Option<Key>, Error> {
        let key: Option<String> = self.first(include_str!("key_of.sql"), [id.expose()], |row| row.get(0))?;
        key.as_deref().map(Key::new).transpose()
    }

    /// Whether this is not an id of a lock, but one of those that stand in its place.
    fn is_placeholder(&self, id: &LockId) -> Result<bool, Error> {
        if !placeholder::may_be(id.expose()) {
            return Ok(false);
        }
        let found = self.find(include_str!("find_by_id.sql"), id.expose())?;
        Ok(matches!(found, Some(KeyRow { held: Held::Otherwise(_), .. })))
    }

    /// Whether anybody at all listens, waits, or holds something together with others. Looked up
    /// once for all the operations of a transaction.
    pub(super) fn present(&mut self) -> Result<Present, Error> {
        if let Some(known) = self.present {
            return Ok(known);
        }
        let read = |row: &Row<'_>| Ok(Present { listeners: row.get(0)?, waiters: row.get(1)?, grants: row.get(2)? });
        let found = self.prepare(include_str!("present.sql"))?.query_row([], read).map_err(translate)?;
        self.present = Some(found);
        Ok(found)
    }

    pub(super) fn extend(&mut self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        if self.is_placeholder(id)? {
            return Ok(Extend::Absent(Absence::NotFound));
        }
        let expires_at = self.now.expiry(ttl);
        let until = column(expires_at.as_millis());
        if self.execute(include_str!("extend.sql"), params![id.expose(), self.dead_at(), until])? > 0 {
            return Ok(Extend::Extended { expires_at });
        }
        if self.present()?.grants && self.extend_grant(id, expires_at)? {
            return Ok(Extend::Extended { expires_at });
        }
        Ok(Extend::Absent(self.absence(id)?))
    }

    pub(super) fn force_release(&mut self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        let found = self.find(include_str!("find.sql"), key.as_str())?;
        let present = self.present()?;
        let crowded = matches!(found, Some(KeyRow { held: Held::Otherwise(_), .. }));
        if crowded || (present.waiters && self.has_line(key)?) {
            return self.force_release_in_crowd(key, found, only);
        }
        let wanted = |record: &Record| only.is_none_or(|only| record.fence == only);
        let Some(record) = self.live(found).filter(wanted) else {
            return Ok(Vec::new());
        };
        self.execute(include_str!("force_release.sql"), [key.as_str()])?;
        self.messages.push(Message::Freed(key.clone()));
        let lock = TakenLock { key: record.key.clone(), fence: record.fence };
        self.messages.push(Message::Taken(lock, Loss::ForceReleased));
        Ok(vec![record])
    }

    pub(super) fn listen(&mut self, topics: &[String], address: &str) -> Result<(), Error> {
        // A subscriber hears of everything after its own operation, also in the same transaction.
        let present = self.present()?;
        self.present = Some(Present { listeners: true, ..present });
        let sql = "INSERT OR IGNORE INTO listeners (topic, address) VALUES (?1, ?2)";
        topics.iter().try_for_each(|topic| self.execute(sql, [topic, address]).map(drop))
    }

    pub(super) fn unlisten(&self, topics: &[String], address: &str) -> Result<(), Error> {
        let sql = "DELETE FROM listeners WHERE topic = ?1 AND address = ?2";
        topics.iter().try_for_each(|topic| self.execute(sql, [topic, address]).map(drop))
    }

    /// Removes the row of a key that nobody holds, fence and all. Only the key of an examination
    /// or a try, which nobody else uses, may be forgotten: the trigger keeps all others.
    pub(super) fn forget(&self, key: &Key) -> Result<(), Error> {
        let connection = &self.database.connection;
        let triggers = |on| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, on).map_err(translate);
        triggers(false)?;
        let sql = "DELETE FROM locks WHERE key = ?1 AND lock_id IS NULL";
        let forgotten = connection.execute(sql, [key.as_str()]).map_err(translate);
        triggers(true)?;
        forgotten?;
        let unheld = "DELETE FROM grants WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM locks WHERE key = ?1)";
        let awaited = "DELETE FROM line WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM locks WHERE key = ?1)";
        [unheld, awaited].into_iter().try_for_each(|sql| self.execute(sql, [key.as_str()]).map(drop))
    }

    fn absence(&mut self, id: &LockId) -> Result<Absence, Error> {
        let mut found = self.find(include_str!("find_by_id.sql"), id.expose())?.is_some();
        if !found && self.present()?.grants {
            found = self.grant_by_id(id)?.is_some();
        }
        Ok(if found { Absence::Expired } else { Absence::NotFound })
    }

    pub(super) fn find(&self, sql: &'static str, by: &str) -> Result<Option<KeyRow>, Error> {
        self.first(sql, [by], key_row)
    }

    /// The lock in a row, if it is held by one alone.
    pub(super) fn live(&self, found: Option<KeyRow>) -> Option<Record> {
        match found?.held {
            Held::Plain(record) if record.expires_at.is_live(self.now) => Some(record),
            _ => None,
        }
    }

    /// A lock that expires at this time or before is dead.
    pub(super) fn dead_at(&self) -> i64 {
        column(self.now.latest_dead().as_millis())
    }

    pub(super) fn prepare(&self, sql: &'static str) -> Result<CachedStatement<'_>, Error> {
        self.database.connection.prepare_cached(sql).map_err(translate)
    }

    /// How many rows a statement changed.
    pub(super) fn execute(&self, sql: &'static str, values: impl Params) -> Result<usize, Error> {
        self.prepare(sql)?.execute(values).map_err(translate)
    }

    pub(super) fn first<T>(
        &self,
        sql: &'static str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.prepare(sql)?.query_row(values, read).optional().map_err(translate)
    }

    pub(super) fn all<T>(
        &self,
        sql: &'static str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        self.prepare(sql)?.query_map(values, read).and_then(Iterator::collect).map_err(translate)
    }
}
