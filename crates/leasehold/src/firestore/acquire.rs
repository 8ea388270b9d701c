//! Taking a lock.

use std::pin::pin;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::clocks::Moment;
use super::connection::{Failure, Session};
use super::record::{self, Taken, counter};
use super::transaction::{Consistency, Read, Transaction, update};
use super::{Firestore, query};
use crate::backend::{Acquire, AcquireRequest, Grant};
use crate::remote::stored::Stored;
use crate::{Error, Fence, Loss, Operation};

/// The documents that a request is about.
struct Wanted<'a> {
    request: &'a AcquireRequest,
    lock: String,
    counter: String,
}

/// What stands in the way of a grant, or does not.
enum Standing {
    /// Whoever had the lock has lost it.
    Free,
    /// The lock with this fence may be taken from its holder.
    Stealable(Fence),
    /// That is the answer.
    Answer(Acquire),
}

/// What comes of a request by what was read in its transaction.
enum Decision {
    /// The grant, once this is written.
    Grant(Grant, Vec<api::Write>),
    Answer(Acquire),
}

impl Firestore {
    pub(super) async fn acquire_lock(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let id = self.names.id(&request.key)?;
        let wanted = Wanted { request, lock: self.names.lock(&id), counter: self.names.fence(&id)? };
        let connection = self.connection()?;
        let session = connection.session(Operation::Acquire);
        session.retry(|| self.try_acquire(session, &wanted)).await
    }

    /// Who would only be refused reads without a transaction: the server keeps everybody from
    /// changing what an open transaction has read, the holder's heartbeats too, and one whose
    /// process stands still is open for a minute.
    async fn try_acquire(&self, session: Session<'_>, wanted: &Wanted<'_>) -> Result<Acquire, Failure> {
        let only_lock = [wanted.lock.as_str()];
        let mut look = pin!(session.get(&self.clocks, &only_lock, Consistency::Latest));
        let (mut begin, mut begun) = (pin!(session.begin()), None);
        let seen = loop {
            tokio::select! {
                seen = &mut look => break seen?,
                transaction = &mut begin, if begun.is_none() => begun = Some(transaction),
            }
        };
        seen.moment.check().map_err(Failure::Refused)?;
        if let Standing::Answer(answer) = wanted.judge(seen.find(&wanted.lock), seen.moment)? {
            return Ok(answer);
        }
        let mut transaction = match begun {
            Some(transaction) => transaction?,
            None => begin.await?,
        };
        let acquired = self.acquire_in(&mut transaction, session, wanted).await;
        transaction.roll_back().await;
        acquired
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
        match wanted.decide(&read?, &same_id?)? {
            Decision::Grant(grant, writes) => {
                transaction.commit(writes).await?;
                Ok(Acquire::Granted(grant))
            }
            Decision::Answer(answer) => Ok(answer),
        }
    }
}

impl Wanted<'_> {
    fn decide(&self, read: &Read, same_id: &Read) -> Result<Decision, Failure> {
        let before = read.find(&self.lock);
        let stolen = match self.judge(before, read.moment)? {
            Standing::Answer(answer) => return Ok(Decision::Answer(answer)),
            Standing::Stealable(fence) => Some(fence),
            Standing::Free => None,
        };
        let id = &self.request.lock_id;
        for document in same_id.documents.iter().filter(|document| document.name != self.lock) {
            if record::stored(document).is_ok_and(|other| other.has_id(id) && other.is_live(read.moment.early)) {
                return Err(Failure::Refused(Error::id_in_use()));
            }
        }
        let counter = read.find(&self.counter);
        let (grant, writes) = self.grant(before, counter, stolen, read.moment).map_err(Failure::Refused)?;
        Ok(Decision::Grant(grant, writes))
    }

    /// What the document of the lock, if there is one, means for the request.
    fn judge(&self, document: Option<&api::Document>, moment: Moment) -> Result<Standing, Failure> {
        let Some(document) = document else { return Ok(Standing::Free) };
        let stored = record::stored(document).map_err(Failure::Refused)?;
        if !stored.is_live(moment.early) {
            return Ok(Standing::Free);
        }
        if stored.has_id(&self.request.lock_id) {
            let record = record::into_record(stored).map_err(Failure::Refused)?;
            return Ok(Standing::Answer(Acquire::Granted(record.grant())));
        }
        if let Some(fence) = self.may_steal(document, moment) {
            return Ok(Standing::Stealable(fence));
        }
        Ok(Standing::Answer(Acquire::Held(stored.contention(moment.early))))
    }

    fn may_steal(&self, document: &api::Document, moment: Moment) -> Option<Fence> {
        let steal = self.request.steal;
        if !steal.is_possible() {
            return None;
        }
        let held = record::into_record(record::stored(document).ok()?).ok()?;
        steal.allows(&self.request.holder, &held, moment.early).then_some(held.fence)
    }

    /// The grant, and what has to be written for it.
    fn grant(
        &self,
        before: Option<&api::Document>,
        counter: Option<&api::Document>,
        stolen: Option<Fence>,
        moment: Moment,
    ) -> Result<(Grant, Vec<api::Write>), Error> {
        let request = self.request;
        let counted = counter.map(record::last_fence).transpose()?;
        // A counter that was lost is no reason to count from the start.
        let locked = before.and_then(|document| record::stored(document).ok());
        let locked = locked.and_then(|Stored { fence, .. }| fence.parse().ok());
        let fence = Fence::next(counted.max(locked), moment.server)?;
        let now = moment.late;
        let grant = Grant {
            lock_id: request.lock_id,
            fence,
            acquired_at: crate::Timestamp::from_millis(now.as_millis()),
            expires_at: now.expiry(request.ttl),
        };
        let key = request.key.as_str();
        let taken = match stolen {
            Some(fence) => Some(Taken { key: key.to_owned(), fence, at: moment.server, how: Loss::Stolen }),
            None => counter.and_then(record::taken),
        };
        let count = record::counter_document(self.counter.clone(), key, fence, taken.as_ref(), moment.server);
        let lock = record::document(self.lock.clone(), request, &grant);
        let writes = vec![update(lock, None, before), update(count, Some(&counter::ALL), counter)];
        Ok((grant, writes))
    }
}
