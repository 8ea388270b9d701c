//! What the holder of a lock may do with it, by its id.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::acquire::{count, taken};
use super::connection::{Failure, Session};
use super::key_document::KeyDocument;
use super::transaction::{Consistency, Read, delete};
use super::{Firestore, query, record};
use crate::backend::{Absence, Extend, Record, Release};
use crate::{Error, ErrorCode, Fence, Key, LockId, Loss, Operation, Ttl};

impl Firestore {
    pub(super) async fn release_lock(&self, id: &LockId) -> Result<Release, Error> {
        self.release_in(self.connection()?.session(Operation::Release), id).await
    }

    pub(super) async fn release_in(&self, session: Session<'_>, id: &LockId) -> Result<Release, Error> {
        session.retry(|| self.try_release(session, id)).await
    }

    pub(super) async fn extend_lock(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.extend_in(self.connection()?.session(Operation::Extend), id, ttl).await
    }

    pub(super) async fn extend_in(&self, session: Session<'_>, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        session.retry(|| self.try_extend(session, id, ttl)).await
    }

    pub(super) async fn end_lock(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        let connection = self.connection()?;
        let session = connection.session(Operation::ForceRelease);
        session.retry(|| self.try_force_release(session, key, only)).await
    }

    async fn try_release(&self, session: Session<'_>, id: &LockId) -> Result<Release, Failure> {
        let mut keys = self.find_by_id(session, id).await?;
        let owned = owned(&keys, id).map_err(Failure::Refused)?;
        let released = release(&mut keys, owned, id);
        session.write_changes(&keys).await?;
        Ok(released)
    }

    async fn try_extend(&self, session: Session<'_>, id: &LockId, ttl: Ttl) -> Result<Extend, Failure> {
        let mut keys = self.find_by_id(session, id).await?;
        let owned = owned(&keys, id).map_err(Failure::Refused)?;
        let extended = extend(&mut keys, owned, id, ttl);
        session.write_changes(&keys).await?;
        Ok(extended)
    }

    /// Ends locks, and has their counter tell so.
    async fn try_force_release(
        &self,
        session: Session<'_>,
        key: &Key,
        only: Option<Fence>,
    ) -> Result<Vec<Record>, Failure> {
        let id = self.names.id(key).map_err(Failure::Refused)?;
        let (lock, counter) = (self.names.lock(&id), self.names.fence(&id).map_err(Failure::Refused)?);
        let read = session.get(&self.clocks, &[&lock, &counter], Consistency::Latest).await?;
        let mut held = KeyDocument::read(&lock, read.find(&lock), read.moment).map_err(Failure::Refused)?;
        let ended = held.force_release(only).map_err(Failure::Refused)?;
        let mut writes: Vec<_> = held.write().into_iter().collect();
        if let Some(told) = taken(key, &ended, Loss::ForceReleased, read.moment.server) {
            let before = read.find(&counter);
            let counted = before.map(record::last_fence).transpose().map_err(Failure::Refused)?;
            // The lock's own is about to be forgotten.
            if let Some(last) = counted.max(held.last()) {
                writes.push(count(&counter, key, last, Some(told), before, read.moment.server));
            }
        }
        if !writes.is_empty() {
            session.write(writes).await?;
        }
        Ok(ended)
    }

    /// The documents in which this id is, or was. They are read outside of a transaction: one that
    /// was begun by a request whose sender has given up would keep the lock from being released for
    /// a minute.
    pub(super) async fn find_by_id(&self, session: Session<'_>, id: &LockId) -> Result<Vec<KeyDocument>, Failure> {
        let asked = query::by_id(&self.names, id);
        let read = session.query(&self.clocks, &self.names.root, asked, Consistency::Latest).await?;
        Ok(readable(&read))
    }

    /// Removes what keys have left that only an examination or a try used: their fences.
    pub(super) async fn forget(&self, keys: &[Key]) -> Result<(), Error> {
        for key in keys {
            let count = self.names.fence(&self.names.id(key)?)?;
            let connection = self.connection()?;
            let session = connection.session(Operation::Lookup);
            session.retry(|| self.try_forget(session, &count)).await?;
        }
        Ok(())
    }

    async fn try_forget(&self, session: Session<'_>, counter: &str) -> Result<(), Failure> {
        let read = session.get(&self.clocks, &[counter], Consistency::Latest).await?;
        match read.find(counter) {
            Some(document) => session.write(vec![delete(document)]).await,
            None => Ok(()),
        }
    }
}

impl Session<'_> {
    async fn write_changes(self, keys: &[KeyDocument]) -> Result<(), Failure> {
        let writes: Vec<_> = keys.iter().filter_map(KeyDocument::write).collect();
        if writes.is_empty() { Ok(()) } else { self.write(writes).await }
    }
}

/// The documents that are those of keys.
pub(super) fn readable(read: &Read) -> Vec<KeyDocument> {
    let read_one = |document: &api::Document| KeyDocument::read(&document.name, Some(document), read.moment).ok();
    read.documents.iter().filter_map(read_one).collect()
}

/// Where an id is, among the documents that were found for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owned {
    /// It holds the lock of this one.
    Holds(usize),
    /// It stands in line for the lock of this one.
    Waits(usize),
    Not(Absence),
}

/// # Errors
///
/// It holds more than one lock: nobody can tell which of them it stands for.
pub(super) fn owned(keys: &[KeyDocument], id: &LockId) -> Result<Owned, Error> {
    let held: Vec<_> = keys.iter().enumerate().filter(|(_, key)| key.is_held_by(id)).collect();
    if held.len() > 1 {
        tracing::warn!(locks = held.len(), "more than one lock has the same id: none of them is touched");
        return Err(Error::new(ErrorCode::Internal, "more than one lock has this id")
            .with_hint("somebody copied a document: look for it with `leasehold ls`, and end it by force"));
    }
    if let [(index, _)] = held[..] {
        return Ok(Owned::Holds(index));
    }
    if let Some(index) = keys.iter().position(|key| key.is_waited_for_by(id)) {
        return Ok(Owned::Waits(index));
    }
    let expired = keys.iter().any(|key| key.is_dead(id));
    Ok(Owned::Not(if expired { Absence::Expired } else { Absence::NotFound }))
}

/// Gives up the lock, or the place, of an id.
pub(super) fn release(keys: &mut [KeyDocument], owned: Owned, id: &LockId) -> Release {
    match owned {
        Owned::Holds(index) | Owned::Waits(index) => keys[index].release(id),
        Owned::Not(absence) => {
            keys.iter_mut().for_each(KeyDocument::tidy);
            Release::Absent(absence)
        }
    }
}

pub(super) fn extend(keys: &mut [KeyDocument], owned: Owned, id: &LockId, ttl: Ttl) -> Extend {
    match owned {
        Owned::Holds(index) => keys[index].extend(id, ttl),
        // A place is no lock.
        Owned::Waits(_) => Extend::Absent(Absence::NotFound),
        Owned::Not(absence) => Extend::Absent(absence),
    }
}
