//! What is decided about keys that several hold or wait for.

use rusqlite::params;

use super::error::translate;
use super::key_rows::KeyRows;
use super::operations::{Message, Operations, TakenLock};
use super::placeholder;
use super::rows::{Held, KeyRow, Reserved, column, grant};
use crate::backend::{Absence, Acquire, AcquireAll, AcquireRequest, Mode, Record, Release};
use crate::key_state::{Acquired, KeyState};
use crate::remote::placeholder::Placeholder;
use crate::{Error, Fence, Key, LockId, Loss, Timestamp};

/// Who is around a request.
pub(super) struct Around {
    /// Somebody may stand in line for its key.
    line: bool,
    /// Its id has the lock of another key, or waits for it.
    elsewhere: bool,
    /// Its id holds the key together with others, or did.
    here: bool,
}

impl Around {
    pub(super) fn is_somebody(&self) -> bool {
        self.line || self.elsewhere || self.here
    }
}

impl Operations<'_> {
    pub(super) fn around(&self, request: &AcquireRequest) -> Result<Around, Error> {
        let values = params![request.key.as_str(), request.lock_id.expose(), self.now_millis()];
        self.prepare(include_str!("around.sql"))?
            .query_row(values, |row| Ok(Around { line: row.get(0)?, elsewhere: row.get(1)?, here: row.get(2)? }))
            .map_err(translate)
    }

    pub(super) fn has_line(&self, key: &Key) -> Result<bool, Error> {
        let found = self.first("SELECT 1 FROM line WHERE key = ?1 LIMIT 1", [key.as_str()], |_| Ok(()))?;
        Ok(found.is_some())
    }

    pub(super) fn acquire_in_crowd(&mut self, request: &AcquireRequest, row: Option<KeyRow>) -> Result<Acquire, Error> {
        let around = self.around(request)?;
        if around.elsewhere {
            return Err(Error::id_in_use());
        }
        if request.mode == Mode::Shared
            && !around.is_somebody()
            && let Some(KeyRow { fence, held: Held::Otherwise(found) }) = &row
            && found.kind == Placeholder::Shared
            && found.expires_at.is_live(self.now)
        {
            return self.share(request, *fence, found);
        }
        self.atomically(|this| {
            let mut rows = this.load(&request.key, row, Some(&request.lock_id))?;
            let (now, last) = (this.now, rows.last_fence());
            let Acquired { answer, is_new, stolen } = rows.state.acquire(request, now, || Fence::next(last, now))?;
            this.settle(rows)?;
            for victim in stolen {
                let lock = TakenLock { key: victim.key, fence: victim.fence };
                this.messages.push(Message::Taken(lock, Loss::Stolen));
            }
            match answer {
                Acquire::Granted(granted) => {
                    if is_new {
                        this.tell_granted(&request.key, granted.fence, Some(&request.holder))?;
                    }
                    Ok(Acquire::Granted(granted))
                }
                Acquire::Held(contention) if contention.place.is_some() => {
                    let place = this.before(&request.key, &request.lock_id)?;
                    Ok(Acquire::Held(contention.with_place(Some(place))))
                }
                held => Ok(held),
            }
        })
    }

    /// Lets one more in who shares a key, however many there are.
    fn share(&mut self, request: &AcquireRequest, last: Fence, found: &Reserved) -> Result<Acquire, Error> {
        let fence = Fence::next(Some(last), self.now)?;
        let mut state = KeyState::default();
        let granted = state.grant(request, fence, self.now);
        for record in &state.grants {
            self.add_grant(record)?;
            let (acquired_at, expires_at) = (record.acquired_at, record.expires_at.max(found.expires_at));
            let moved = Reserved { kind: found.kind, acquired_at, expires_at };
            self.write_placeholder(&request.key, &moved, Some(fence))?;
        }
        self.tell_granted(&request.key, fence, Some(&request.holder))?;
        Ok(Acquire::Granted(granted))
    }

    pub(super) fn acquire_all(&mut self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        let rows = requests.iter().map(|request| {
            let row = self.find(include_str!("find.sql"), request.key.as_str())?;
            self.load(&request.key, row, Some(&request.lock_id))
        });
        let mut rows = rows.collect::<Result<Vec<_>, Error>>()?;
        let now = self.now;
        let both = || requests.iter().zip(&rows);
        let held: Option<Vec<_>> =
            both().map(|(request, rows)| rows.state.grant_of(&request.lock_id, now).map(Record::grant)).collect();
        if let Some(grants) = held {
            return Ok(AcquireAll::Granted(grants));
        }
        let obstacle = |(request, rows): (&AcquireRequest, &KeyRows)| rows.state.obstacle(request, now);
        let refused = both().enumerate().find_map(|(which, both)| Some((which, obstacle(both)?)));
        if let Some((which, contention)) = refused {
            self.atomically(|this| this.settle(rows.swap_remove(which)).map(drop))?;
            return Ok(AcquireAll::Held { which, contention });
        }
        let fence = Fence::next(rows.iter().filter_map(KeyRows::last_fence).max(), now)?;
        for request in requests {
            if self.around(request)?.elsewhere {
                return Err(Error::id_in_use());
            }
        }
        self.atomically(|this| {
            let mut grants = Vec::with_capacity(requests.len());
            for (request, mut rows) in requests.iter().zip(rows.drain(..)) {
                grants.push(rows.state.grant(request, fence, now));
                this.settle(rows)?;
                this.tell_granted(&request.key, fence, Some(&request.holder))?;
            }
            Ok(AcquireAll::Granted(grants))
        })
    }

    pub(super) fn release_in_crowd(&mut self, key: &Key, id: &LockId) -> Result<Release, Error> {
        self.atomically(|this| {
            let row = this.find(include_str!("find.sql"), key.as_str())?;
            let mut rows = this.load(key, row, Some(id))?;
            let held = rows.state.live(this.now).count();
            let answer = rows.state.release(id, this.now);
            // One whose lock has run out may wait for it again.
            rows.state.line.retain(|place| place.waiter.lock_id != *id);
            this.settle_release(rows, held)?;
            Ok(answer)
        })
    }

    /// Gives up whatever an id has that is not a lock held by one alone.
    pub(super) fn release_elsewhere(&mut self, id: &LockId) -> Result<Release, Error> {
        if let Some(record) = self.grant_by_id(id)? {
            if self.has_line(&record.key)? {
                return self.release_in_crowd(&record.key, id);
            }
            if !record.expires_at.is_live(self.now) {
                return Ok(Release::Absent(Absence::Expired));
            }
            return self.release_grant(&record);
        }
        let found = self.first("SELECT key FROM line WHERE lock_id = ?1", [id.expose()], |row| row.get::<_, String>(0));
        if let Some(key) = found? {
            let answer = self.release_in_crowd(&Key::new(&key)?, id)?;
            // Also if its time was over.
            self.leave(id)?;
            return Ok(answer);
        }
        let dead = self.find(include_str!("find_by_id.sql"), id.expose())?;
        Ok(Release::Absent(if dead.is_some() { Absence::Expired } else { Absence::NotFound }))
    }

    /// Ends one of the grants of a key that nobody stands in line for, however many there are.
    fn release_grant(&mut self, record: &Record) -> Result<Release, Error> {
        let beside = placeholder::id(placeholder::beside(record.mode), record.key.as_str());
        self.execute("DELETE FROM grants WHERE lock_id = ?1", [record.lock_id.expose()])?;
        let left = "SELECT 1 FROM grants WHERE key = ?1 AND placeholder = ?2 LIMIT 1";
        if self.first(left, [record.key.as_str(), &beside], |_| Ok(()))?.is_some() {
            self.move_placeholder(record, &beside)?;
        } else {
            self.execute(include_str!("force_release.sql"), [record.key.as_str()])?;
        }
        if self.present()?.listeners {
            self.messages.push(Message::Freed(record.key.clone()));
        }
        Ok(Release::Released)
    }

    /// The grant of an id that holds a key together with others, live or dead.
    pub(super) fn grant_by_id(&self, id: &LockId) -> Result<Option<Record>, Error> {
        self.first(include_str!("grant_by_id.sql"), [id.expose()], grant)
    }

    /// Tells whether there was such a grant.
    pub(super) fn extend_grant(&mut self, id: &LockId, expires_at: Timestamp) -> Result<bool, Error> {
        let Some(record) = self.grant_by_id(id)? else { return Ok(false) };
        let values = params![id.expose(), self.dead_at(), column(expires_at.as_millis())];
        if self.execute(include_str!("extend_grant.sql"), values)? == 0 {
            return Ok(false);
        }
        let beside = placeholder::id(placeholder::beside(record.mode), record.key.as_str());
        let later = "UPDATE locks SET expires_at_ms = ?3 WHERE key = ?1 AND lock_id = ?2 AND expires_at_ms <= ?3";
        let until = column(expires_at.as_millis());
        if self.execute(later, params![record.key.as_str(), beside, until])? == 0 {
            self.move_placeholder(&record, &beside)?;
        }
        Ok(true)
    }

    /// Has the placeholder end with the longest grant that is left, if the one that was changed may
    /// have been the longest. `record` is what it was before.
    fn move_placeholder(&self, record: &Record, beside: &str) -> Result<(), Error> {
        let values = params![record.key.as_str(), beside, column(record.expires_at.as_millis())];
        self.execute(include_str!("move_placeholder.sql"), values).map(drop)
    }

    pub(super) fn force_release_in_crowd(
        &mut self,
        key: &Key,
        row: Option<KeyRow>,
        only: Option<Fence>,
    ) -> Result<Vec<Record>, Error> {
        self.atomically(|this| {
            let mut rows = this.load(key, row, None)?;
            let held = rows.state.live(this.now).count();
            let ended = rows.state.force_release(only, this.now);
            this.settle_release(rows, held)?;
            for record in &ended {
                let lock = TakenLock { key: key.clone(), fence: record.fence };
                this.messages.push(Message::Taken(lock, Loss::ForceReleased));
            }
            Ok(ended)
        })
    }

    /// How many are before an id in the line of a key.
    fn before(&self, key: &Key, id: &LockId) -> Result<u32, Error> {
        let values = params![key.as_str(), id.expose(), self.now_millis()];
        self.prepare(include_str!("before_us.sql"))?.query_row(values, |row| row.get(0)).map_err(translate)
    }
}
