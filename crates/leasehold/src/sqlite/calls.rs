//! Whose turn it is.

use super::bus::turn_topic;
use super::error::leaves_transaction_intact;
use super::key_rows::KeyRows;
use super::operations::{Message, Operations};
use crate::{Error, Key, LockId};

/// How many places are looked at in one go for somebody who is still there.
const MOST_GONE: usize = 1000;

impl Operations<'_> {
    /// Calls who is next in line for a key, if there is room, and writes what has changed. Whoever
    /// would be called and is gone is passed over at once: no lease need run out for it.
    pub(super) fn settle(&mut self, mut rows: KeyRows) -> Result<KeyRows, Error> {
        loop {
            let called = rows.state.call_next(self.now);
            self.store(&rows)?;
            match called.or_else(|| rows.state.kept_for(self.now)) {
                Some(id) if self.is_gone(&id)? => {
                    self.strike_off_gone(&rows.key)?;
                    let row = self.find(include_str!("find.sql"), rows.key.as_str())?;
                    rows = self.load(&rows.key, row, None)?;
                }
                _ => {
                    if self.present()?.listeners {
                        self.messages.extend(called.map(Message::Called));
                    }
                    return Ok(rows);
                }
            }
        }
    }

    /// The same after a release. If nobody is in line, others may want to know that there is room;
    /// `held` held the key before.
    pub(super) fn settle_release(&mut self, rows: KeyRows, held: usize) -> Result<(), Error> {
        let rows = self.settle(rows)?;
        let left = rows.state.live(self.now).count();
        if rows.state.line.is_empty() && (left == 0 || left < held) && self.present()?.listeners {
            self.messages.push(Message::Freed(rows.key));
        }
        Ok(())
    }

    /// Whether whoever waits under this id listens somewhere, and nobody is there any more. One who
    /// does not listen yet, or whose socket was deleted, may be well.
    fn is_gone(&mut self, id: &LockId) -> Result<bool, Error> {
        if !self.present()?.listeners {
            return Ok(false);
        }
        let sql = "SELECT address FROM listeners WHERE topic = ?1";
        let addresses: Vec<String> = self.all(sql, [turn_topic(id)], |row| row.get(0))?;
        Ok(!addresses.is_empty() && addresses.iter().all(|address| self.sender.refuses(address)))
    }

    /// Strikes off those who are gone, from the first in line to one who is not.
    fn strike_off_gone(&mut self, key: &Key) -> Result<(), Error> {
        for place in self.first_in_line(key, MOST_GONE)? {
            let id = place.waiter.lock_id;
            if !self.is_gone(&id)? {
                break;
            }
            self.leave(&id)?;
            self.execute("DELETE FROM listeners WHERE topic = ?1", [turn_topic(&id)])?;
        }
        Ok(())
    }

    /// Strikes off all who wait at an address at which nobody is.
    pub(super) fn strike_off(&mut self, address: &str) -> Result<(), Error> {
        let sql = "SELECT line.key, line.lock_id FROM listeners JOIN line ON line.lock_id = substr(listeners.topic, 6)
                   WHERE listeners.address = ?1 AND listeners.topic LIKE 'turn:%'";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        for (key, id) in self.all(sql, [address], read)? {
            let (Ok(key), Ok(id)) = (Key::new(&key), id.parse()) else { continue };
            if !self.is_gone(&id)? {
                continue;
            }
            match self.release_in_crowd(&key, &id) {
                Err(error) if !leaves_transaction_intact(&error) => return Err(error),
                _ => self.leave(&id)?,
            }
        }
        self.execute("DELETE FROM listeners WHERE address = ?1", [address]).map(drop)
    }

    /// Does all of it, or, if it fails, nothing. A transaction goes on if an operation fails
    /// because of a row that makes no sense.
    pub(super) fn atomically<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let (messages, present) = (self.messages.len(), self.present);
        self.execute("SAVEPOINT operation", [])?;
        let outcome = act(self);
        if outcome.is_err() {
            self.messages.truncate(messages);
            self.present = present;
            // SQLite may have ended the whole transaction already.
            let _ = self.execute("ROLLBACK TO operation", []);
            let _ = self.execute("RELEASE operation", []);
            return outcome;
        }
        self.execute("RELEASE operation", [])?;
        outcome
    }
}
