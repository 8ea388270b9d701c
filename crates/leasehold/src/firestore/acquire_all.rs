//! Taking several locks or none.

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;

use super::acquire::{Wanted, count};
use super::connection::{Boxed, Failure, Session};
use super::key_document::KeyDocument;
use super::transaction::{Read, Transaction};
use super::{Firestore, query, record};
use crate::backend::{AcquireAll, AcquireRequest, MOST_KEYS, Record, all};
use crate::{Error, Fence, LockId, Operation};

impl Firestore {
    pub(super) async fn acquire_locks(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        if requests.is_empty() {
            return Ok(AcquireAll::Granted(Vec::new()));
        }
        if requests.len() > MOST_KEYS {
            let message = format!("at most {MOST_KEYS} locks can be taken at once");
            return Err(Error::invalid(message).during(Operation::Acquire));
        }
        let wanted: Vec<_> = requests.iter().map(|request| self.wanted(request)).collect::<Result<_, _>>()?;
        let connection = self.connection()?;
        let session = connection.session(Operation::Acquire);
        session.retry(|| self.try_acquire_all(session, &wanted)).await
    }

    async fn try_acquire_all(&self, session: Session<'_>, wanted: &[Wanted<'_>]) -> Result<AcquireAll, Failure> {
        let locks: Vec<&str> = wanted.iter().map(|wanted| wanted.lock.as_str()).collect();
        let (seen, begun) = self.look(session, &locks, true).await?;
        let mut keys = keys(wanted, &seen).map_err(Failure::Refused)?;
        if let Some(answer) = answer(wanted, &keys) {
            let refused_by = if let AcquireAll::Held { which, .. } = &answer { keys.get_mut(*which) } else { None };
            if let Some(write) = refused_by.and_then(KeyDocument::call_next) {
                session.write(vec![write]).await?;
            }
            return Ok(answer);
        }
        let mut transaction = begun.transaction().await?;
        let acquired = self.acquire_all_in(&mut transaction, session, wanted).await;
        transaction.roll_back().await;
        acquired
    }

    async fn acquire_all_in(
        &self,
        transaction: &mut Transaction<'_>,
        session: Session<'_>,
        wanted: &[Wanted<'_>],
    ) -> Result<AcquireAll, Failure> {
        let names: Vec<&str> = wanted.iter().flat_map(|wanted| [wanted.lock.as_str(), &wanted.counter]).collect();
        let ids: Vec<LockId> = wanted.iter().map(|wanted| wanted.request.lock_id).collect();
        let read = session.get(&self.clocks, &names, transaction.here());
        let within = transaction.here();
        let ask = |ids: &[LockId]| -> Boxed<'_, _> {
            let query = query::by_either(&self.names, ids);
            Box::pin(session.query(&self.clocks, &self.names.root, query, within.clone()))
        };
        let same_ids = ids.chunks(query::MOST_IDS_OF_EITHER).map(ask).collect();
        let (read, same_ids) = tokio::join!(read, all(same_ids));
        let same_ids = same_ids.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (answer, writes) = decide(wanted, &read?, &same_ids).map_err(Failure::Refused)?;
        if !writes.is_empty() {
            transaction.commit(writes).await?;
        }
        Ok(answer)
    }
}

fn keys(wanted: &[Wanted<'_>], read: &Read) -> Result<Vec<KeyDocument>, Error> {
    wanted.iter().map(|wanted| KeyDocument::read(&wanted.lock, read.find(&wanted.lock), read.moment)).collect()
}

/// The answer to the requests, unless it is that all are granted.
fn answer(wanted: &[Wanted<'_>], keys: &[KeyDocument]) -> Option<AcquireAll> {
    let pairs = || wanted.iter().map(|wanted| wanted.request).zip(keys);
    let own = |(request, key): (&AcquireRequest, &KeyDocument)| {
        key.holders().find(|grant| grant.lock_id == request.lock_id).map(Record::grant)
    };
    if let Some(grants) = pairs().map(own).collect() {
        return Some(AcquireAll::Granted(grants));
    }
    let mut obstacles = pairs().enumerate().filter_map(|(which, (request, key))| Some((which, key.obstacle(request)?)));
    obstacles.next().map(|(which, contention)| AcquireAll::Held { which, contention })
}

fn decide(wanted: &[Wanted<'_>], read: &Read, same_ids: &[Read]) -> Result<(AcquireAll, Vec<api::Write>), Error> {
    let mut keys = keys(wanted, read)?;
    if let Some(answer) = answer(wanted, &keys) {
        return Ok((answer, Vec::new()));
    }
    for wanted in wanted {
        same_ids.iter().try_for_each(|same_ids| wanted.check_id(same_ids))?;
    }
    let mut last = None;
    for (wanted, key) in wanted.iter().zip(&keys) {
        let counted = read.find(&wanted.counter).map(record::last_fence).transpose()?;
        last = last.max(counted).max(key.last());
    }
    let now = read.moment.server;
    let fence = Fence::next(last, now)?;
    let (mut grants, mut writes) = (Vec::new(), Vec::new());
    for (wanted, key) in wanted.iter().zip(&mut keys) {
        grants.push(key.grant(wanted.request, fence)?);
        writes.extend(key.write());
        let counter = read.find(&wanted.counter);
        writes.push(count(&wanted.counter, &wanted.request.key, fence, None, counter, now));
    }
    Ok((AcquireAll::Granted(grants), writes))
}
