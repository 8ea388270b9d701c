use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tonic::Status;

use super::{Party, Reads, Waiting};
use crate::data::history::Change;
use crate::failure::{aborted, no_transaction};

/// How long transactions may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a commit waits for others.
    pub(crate) lock_wait: Duration,
    /// How long a transaction lives without a request.
    pub(crate) idle: Duration,
    /// How long a transaction lives at all.
    pub(crate) total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lock_wait: Duration::from_secs(1), idle: Duration::from_secs(60), total: Duration::from_secs(270) }
    }
}

/// The transactions that have begun and not ended.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// In every id, so that one from before a restart means nothing.
    salt: u64,
    last: Party,
    open: BTreeMap<Party, Transaction>,
    pub(crate) waiting: Waiting,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
struct Transaction {
    read_only: bool,
    started: Instant,
    last_used: Instant,
    reads: Reads,
    /// Something that it has read was changed since.
    stale: bool,
}

impl Transactions {
    pub(crate) fn new() -> Self {
        let salt = fastrand::u64(..);
        Self { salt, last: 0, open: BTreeMap::new(), waiting: Waiting::default(), limits: Limits::default() }
    }

    /// A name for one that can wait and has no transaction.
    pub(crate) fn new_party(&mut self) -> Party {
        self.last += 1;
        self.last
    }

    pub(crate) fn begin(&mut self, read_only: bool) -> Party {
        let party = self.new_party();
        let now = Instant::now();
        let transaction =
            Transaction { read_only, started: now, last_used: now, reads: Reads::default(), stale: false };
        self.open.insert(party, transaction);
        party
    }

    /// What clients call the transaction.
    pub(crate) fn id(&self, party: Party) -> Vec<u8> {
        [self.salt.to_be_bytes(), party.to_be_bytes()].concat()
    }

    /// The open transaction that a client means.
    pub(crate) fn find(&mut self, id: &[u8]) -> Result<Party, Status> {
        self.expire();
        let party = id.strip_prefix(&self.salt.to_be_bytes()).and_then(|party| party.try_into().ok());
        let party = party.map(Party::from_be_bytes).ok_or_else(no_transaction)?;
        self.open.get_mut(&party).ok_or_else(no_transaction)?.last_used = Instant::now();
        Ok(party)
    }

    /// Whether it may write.
    pub(crate) fn is_read_only(&self, party: Party) -> bool {
        self.open.get(&party).is_some_and(|transaction| transaction.read_only)
    }

    /// Ends a transaction that may not go on.
    pub(crate) fn check(&mut self, party: Party) -> Result<(), Status> {
        self.expire();
        if self.open.get(&party).ok_or_else(no_transaction)?.stale {
            self.end(party);
            return Err(aborted());
        }
        Ok(())
    }

    /// Remembers what a transaction has read.
    pub(crate) fn has_read(&mut self, party: Party, reads: Reads) {
        if let Some(transaction) = self.open.get_mut(&party).filter(|transaction| !transaction.read_only) {
            transaction.reads.extend(reads);
        }
    }

    pub(crate) fn end(&mut self, party: Party) {
        self.open.remove(&party);
    }

    /// The other transactions that have read what would be changed.
    pub(crate) fn readers(&mut self, of: &[Change], except: Party) -> BTreeSet<Party> {
        self.expire();
        let others = self.open.iter().filter(|(party, transaction)| **party != except && !transaction.stale);
        others.filter(|(_, transaction)| transaction.reads.touched_by(of)).map(|(party, _)| *party).collect()
    }

    /// Dooms the transactions that have read what was changed.
    pub(crate) fn make_stale(&mut self, parties: &BTreeSet<Party>) {
        for party in parties {
            if let Some(transaction) = self.open.get_mut(party) {
                transaction.stale = true;
            }
        }
    }

    /// The number of those that are open.
    pub(crate) fn count(&mut self) -> usize {
        self.expire();
        self.open.len()
    }

    /// The number of those that have read something, so that others may have to wait for them.
    pub(crate) fn count_reading(&mut self) -> usize {
        self.expire();
        self.open.values().filter(|transaction| !transaction.reads.is_empty()).count()
    }

    /// One that waits is not idle.
    fn expire(&mut self) {
        let (limits, waiting) = (self.limits, &self.waiting);
        self.open.retain(|party, transaction| {
            transaction.started.elapsed() <= limits.total
                && (transaction.last_used.elapsed() <= limits.idle || waiting.contains(*party))
        });
    }
}
