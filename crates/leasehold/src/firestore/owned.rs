//! What the holder of a lock may do with it, by its id.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::clocks::Moment;
use super::connection::{Failure, Session};
use super::record::{self, Taken, counter, lock};
use super::transaction::{Consistency, delete, update};
use super::{Firestore, query};
use crate::backend::{Absence, Extend, ForceRelease, Release};
use crate::remote::stored::Stored;
use crate::{Error, ErrorCode, Key, LockId, Loss, Operation, Timestamp, Ttl};

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

    pub(super) async fn end_lock(&self, key: &Key) -> Result<ForceRelease, Error> {
        let connection = self.connection()?;
        let session = connection.session(Operation::ForceRelease);
        session.retry(|| self.try_force_release(session, key)).await
    }

    async fn try_release(&self, session: Session<'_>, id: &LockId) -> Result<Release, Failure> {
        match self.find_owned(session, id).await? {
            Owned::Not(absence) => Ok(Release::Absent(absence)),
            Owned::Live(document, _) => {
                session.write(vec![delete(&document)]).await?;
                Ok(Release::Released)
            }
        }
    }

    async fn try_extend(&self, session: Session<'_>, id: &LockId, ttl: Ttl) -> Result<Extend, Failure> {
        match self.find_owned(session, id).await? {
            Owned::Not(absence) => Ok(Extend::Absent(absence)),
            Owned::Live(document, moment) => {
                let (write, expires_at) = extension(&document, moment, ttl);
                session.write(vec![write]).await?;
                Ok(Extend::Extended { expires_at })
            }
        }
    }

    /// Deletes the lock, and has its counter tell so.
    async fn try_force_release(&self, session: Session<'_>, key: &Key) -> Result<ForceRelease, Failure> {
        let id = self.names.id(key).map_err(Failure::Refused)?;
        let (lock, count) = (self.names.lock(&id), self.names.fence(&id).map_err(Failure::Refused)?);
        let read = session.get(&self.clocks, &[&lock, &count], Consistency::Latest).await?;
        let Some(document) = read.find(&lock) else { return Ok(ForceRelease::Absent) };
        let stored = record::stored(document).map_err(Failure::Refused)?;
        if !stored.is_live(read.moment.early) {
            return Ok(ForceRelease::Absent);
        }
        let record = record::into_record(stored).map_err(Failure::Refused)?;
        let before = read.find(&count);
        let last = before.map(record::last_fence).transpose().map_err(Failure::Refused)?;
        let taken = Taken {
            key: key.as_str().to_owned(),
            fence: record.fence,
            at: read.moment.server,
            how: Loss::ForceReleased,
        };
        // The lock's own is about to be forgotten.
        let last = last.map_or(record.fence, |last| last.max(record.fence));
        let told = record::counter_document(count.clone(), key.as_str(), last, Some(&taken), read.moment.server);
        session.write(vec![delete(document), update(told, Some(&counter::ALL), before)]).await?;
        Ok(ForceRelease::Released(record))
    }

    /// The one live lock with this id. It is read outside of a transaction: one that was begun by
    /// a request whose sender has given up would keep the lock from being released for a minute.
    async fn find_owned(&self, session: Session<'_>, id: &LockId) -> Result<Owned, Failure> {
        let asked = query::by_id(&self.names, id);
        let read = session.query(&self.clocks, &self.names.root, asked, Consistency::Latest).await?;
        Ok(match only_live(&read.documents, id, read.moment.early).map_err(Failure::Refused)? {
            Ok((document, _)) => Owned::Live(Box::new(document.clone()), read.moment),
            Err(absence) => Owned::Not(absence),
        })
    }

    /// Removes what the key of an examination has left: its fence.
    pub(super) async fn forget(&self, key: &Key) -> Result<(), Error> {
        let count = self.names.fence(&self.names.id(key)?)?;
        let connection = self.connection()?;
        let session = connection.session(Operation::Lookup);
        session.retry(|| self.try_forget(session, &count)).await
    }

    async fn try_forget(&self, session: Session<'_>, counter: &str) -> Result<(), Failure> {
        let read = session.get(&self.clocks, &[counter], Consistency::Latest).await?;
        match read.find(counter) {
            Some(document) => session.write(vec![delete(document)]).await,
            None => Ok(()),
        }
    }
}

/// What has to be written so that a lock ends `ttl` later, and when that is.
pub(super) fn extension(document: &api::Document, moment: Moment, ttl: Ttl) -> (api::Write, Timestamp) {
    let expires_at = moment.late.expiry(ttl);
    let changed = record::one_field(&document.name, lock::EXPIRES_AT, record::millis(expires_at));
    (update(changed, Some(&[lock::EXPIRES_AT]), Some(document)), expires_at)
}

/// Whether a lock is still that of an id.
enum Owned {
    Live(Box<api::Document>, Moment),
    Not(Absence),
}

/// The live one of the documents that were found for an id, or why there is none.
///
/// # Errors
///
/// There is more than one: nobody can tell which of them the id stands for.
pub(super) fn only_live<'a>(
    documents: &'a [api::Document],
    id: &LockId,
    now: Timestamp,
) -> Result<Result<(&'a api::Document, Stored), Absence>, Error> {
    let read = |document: &'a api::Document| record::stored(document).ok().map(|stored| (document, stored));
    let mut live: Vec<_> = Vec::new();
    let mut absence = Absence::NotFound;
    for (document, stored) in documents.iter().filter_map(read).filter(|(_, stored)| stored.has_id(id)) {
        if stored.is_live(now) {
            live.push((document, stored));
        } else {
            absence = Absence::Expired;
        }
    }
    if live.len() > 1 {
        tracing::warn!(locks = live.len(), "more than one lock has the same id: none of them is touched");
        return Err(Error::new(ErrorCode::Internal, "more than one lock has this id")
            .with_hint("somebody copied a document: look for it with `leasehold ls`, and end it by force"));
    }
    Ok(live.pop().ok_or(absence))
}
