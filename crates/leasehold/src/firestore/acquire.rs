//! Taking a lock, or a place in the line for it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::connection::{Boxed, Failure, Session};
use super::key_document::KeyDocument;
use super::record::{self, Taken, counter};
use super::transaction::{Consistency, Read, Transaction, update};
use super::{Firestore, query};
use crate::backend::{Acquire, AcquireRequest, Record};
use crate::{Error, Fence, Key, LockId, Loss, Operation, Timestamp};

/// The documents that a request is about.
pub(super) struct Wanted<'a> {
    pub(super) request: &'a AcquireRequest,
    pub(super) lock: String,
    pub(super) counter: String,
    /// An attempt was refused, but others were in the way of writing its place. It is known then
    /// that the id is in no other line. Those who come together are in each other's way for as long
    /// as it takes from the look to the write, so the next attempts ask for no more than they must.
    was_refused: AtomicBool,
}

/// A transaction that is begun while something else is read.
pub(super) enum Begun<'a> {
    Already(Result<Transaction<'a>, Failure>),
    Soon(Boxed<'a, Result<Transaction<'a>, Failure>>),
}

impl<'a> Begun<'a> {
    pub(super) async fn transaction(self) -> Result<Transaction<'a>, Failure> {
        match self {
            Begun::Already(begun) => begun,
            Begun::Soon(begin) => begin.await,
        }
    }
}

impl Firestore {
    pub(super) fn wanted<'a>(&self, request: &'a AcquireRequest) -> Result<Wanted<'a>, Error> {
        let id = self.names.id(&request.key)?;
        let (lock, counter) = (self.names.lock(&id), self.names.fence(&id)?);
        Ok(Wanted { request, lock, counter, was_refused: AtomicBool::new(false) })
    }

    pub(super) async fn acquire_lock(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let wanted = self.wanted(request)?;
        let connection = self.connection()?;
        let session = connection.session(Operation::Acquire);
        session.retry(|| self.try_acquire(session, &wanted)).await
    }

    /// Reads documents, and begins a transaction meanwhile, which has read nothing, if there is
    /// hope that it will be needed.
    ///
    /// Who would only be refused reads without a transaction: the server keeps everybody from
    /// changing what an open transaction has read, the holder's heartbeats too, and one whose
    /// process stands still is open for a minute.
    pub(super) async fn look<'a>(
        &self,
        session: Session<'a>,
        names: &[&str],
        is_hopeful: bool,
    ) -> Result<(Read, Begun<'a>), Failure> {
        let mut look = pin!(session.get(&self.clocks, names, Consistency::Latest));
        let mut begun = Begun::Soon(Box::pin(session.begin()));
        let seen = loop {
            match &mut begun {
                Begun::Soon(begin) if is_hopeful => tokio::select! {
                    seen = &mut look => break seen?,
                    transaction = begin => begun = Begun::Already(transaction),
                },
                _ => break look.await?,
            }
        };
        seen.moment.check().map_err(Failure::Refused)?;
        Ok((seen, begun))
    }

    async fn try_acquire(&self, session: Session<'_>, wanted: &Wanted<'_>) -> Result<Acquire, Failure> {
        let (seen, begun) = self.look(session, &[&wanted.lock], !wanted.was_refused.load(Ordering::Relaxed)).await?;
        if let Some(refused) = wanted.refused(&seen).map_err(Failure::Refused)? {
            return self.refuse(session, wanted, refused).await;
        }
        let mut transaction = begun.transaction().await?;
        let acquired = self.acquire_in(&mut transaction, session, wanted).await;
        transaction.roll_back().await;
        acquired
    }

    /// Writes what a refused request changes, if that is anything: its place, or who is called.
    ///
    /// Also its place is written in no transaction, for the sake of the holder's heartbeats. That
    /// an id waits for no other key is then known of a moment before. One that is sent for two keys
    /// at the same time may have a place in two lines, of which it will get no lock.
    async fn refuse(&self, session: Session<'_>, wanted: &Wanted<'_>, refused: Refused) -> Result<Acquire, Failure> {
        if let Some(write) = refused.write {
            if refused.is_newcomer && !wanted.was_refused.load(Ordering::Relaxed) {
                let same_id = query::by_id(&self.names, &wanted.request.lock_id);
                let same_id = session.query(&self.clocks, &self.names.root, same_id, Consistency::Latest).await?;
                wanted.check_id(&same_id).map_err(Failure::Refused)?;
            }
            wanted.was_refused.store(true, Ordering::Relaxed);
            session.write(vec![write]).await?;
        }
        Ok(refused.answer)
    }

    /// Decides, and writes what was decided.
    async fn acquire_in(
        &self,
        transaction: &mut Transaction<'_>,
        session: Session<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Acquire, Failure> {
        let names = [wanted.lock.as_str(), &wanted.counter];
        let read = session.get(&self.clocks, &names, transaction.here());
        let same_id = query::by_id(&self.names, &wanted.request.lock_id);
        let same_id = session.query(&self.clocks, &self.names.root, same_id, transaction.here());
        let (read, same_id) = tokio::join!(read, same_id);
        let (answer, writes) = wanted.decide(&read?, &same_id?).map_err(Failure::Refused)?;
        if !writes.is_empty() {
            transaction.commit(writes).await?;
        }
        Ok(answer)
    }
}

/// A request that is not granted, or was before.
struct Refused {
    answer: Acquire,
    write: Option<api::Write>,
    /// It gets a place, and had none.
    is_newcomer: bool,
}

impl Wanted<'_> {
    /// The answer to the request, unless it is a new grant.
    fn refused(&self, seen: &Read) -> Result<Option<Refused>, Error> {
        let id = &self.request.lock_id;
        let mut key = KeyDocument::read(&self.lock, seen.find(&self.lock), seen.moment)?;
        let was_waiting = key.is_waited_for_by(id);
        // What the counter says is read in the transaction. Here it only matters whether it would
        // be asked for.
        let acquired = key.acquire(self.request, || Ok(None))?;
        if acquired.is_new {
            return Ok(None);
        }
        let is_newcomer = !was_waiting && key.is_waited_for_by(id);
        Ok(Some(Refused { answer: acquired.answer, write: key.write(), is_newcomer }))
    }

    /// The answer to the request, and what has to be written for it.
    fn decide(&self, read: &Read, same_id: &Read) -> Result<(Acquire, Vec<api::Write>), Error> {
        let counter = read.find(&self.counter);
        let mut key = KeyDocument::read(&self.lock, read.find(&self.lock), read.moment)?;
        let acquired = key.acquire(self.request, || counter.map(record::last_fence).transpose())?;
        let mut writes: Vec<_> = key.write().into_iter().collect();
        if acquired.is_new || key.is_waited_for_by(&self.request.lock_id) {
            self.check_id(same_id)?;
        }
        if acquired.is_new
            && let Acquire::Granted(grant) = &acquired.answer
        {
            let now = read.moment.server;
            let stolen = taken(&self.request.key, &acquired.stolen, Loss::Stolen, now);
            writes.push(count(&self.counter, &self.request.key, grant.fence, stolen, counter, now));
        }
        Ok((acquired.answer, writes))
    }

    /// # Errors
    ///
    /// The id holds the lock of another key, or waits for it.
    pub(super) fn check_id(&self, same_id: &Read) -> Result<(), Error> {
        let id: &LockId = &self.request.lock_id;
        for document in same_id.documents.iter().filter(|document| document.name != self.lock) {
            let other = KeyDocument::read(&document.name, Some(document), same_id.moment);
            if other.is_ok_and(|other| other.is_held_by(id) || other.is_waited_for_by(id)) {
                return Err(Error::id_in_use());
            }
        }
        Ok(())
    }
}

/// What a counter has to tell of locks that were taken, if any were.
pub(super) fn taken(key: &Key, records: &[Record], how: Loss, now: Timestamp) -> Option<Taken> {
    let fences: Vec<Fence> = records.iter().map(|record| record.fence).collect();
    (!fences.is_empty()).then(|| Taken { key: key.as_str().to_owned(), fences, at: now, how })
}

/// Has a counter, which was `before`, go on with `last`, and tell of what was taken.
pub(super) fn count(
    name: &str,
    key: &Key,
    last: Fence,
    new: Option<Taken>,
    before: Option<&api::Document>,
    now: Timestamp,
) -> api::Write {
    let told = new.or_else(|| before.and_then(record::taken));
    let document = record::counter_document(name.to_owned(), key.as_str(), last, told.as_ref(), now);
    update(document, Some(&counter::ALL), before)
}
