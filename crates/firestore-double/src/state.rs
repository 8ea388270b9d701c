use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::Write;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{CommitResponse, Document};
use tonic::Status;

use crate::clock::{Clock, timestamp};
use crate::counts::Counts;
use crate::data::documents::Documents;
use crate::data::history::Change;
use crate::data::index;
use crate::data::journal::{Entry, Journal};
use crate::data::query::Query;
use crate::data::write::Plan;
use crate::failure::aborted;
use crate::transaction::{Party, Transactions};

/// How transactions that get in each other's way are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A commit waits for those that have read what it changes.
    Pessimistic,
    /// A commit goes ahead, and those that have read what it changes fail.
    Optimistic,
    /// A commit goes ahead, and so do those that have read what it changes: transactions that are
    /// none, which Firestore does not have. Only preconditions are left.
    Careless,
}

/// All that the server remembers of its databases. Whoever has it alone sees and leaves it
/// consistent.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) documents: Documents,
    pub(crate) transactions: Transactions,
    pub(crate) mode: Mode,
    pub(crate) counts: Counts,
    /// Whether queries that need an index of several fields are answered.
    pub(crate) composite_indexes: bool,
    /// Fields without an index of their own, as `collection.field`.
    pub(crate) exempted: BTreeSet<String>,
    journal: Option<Journal>,
}

/// Who commits, and on whose bill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committer {
    /// The transaction, or a name to wait by.
    pub(crate) party: Party,
    pub(crate) in_transaction: bool,
    /// Whether the writes are counted: those that tests make by themselves are not.
    pub(crate) counted: bool,
}

impl State {
    /// Refuses a query for which there is no index.
    pub(crate) fn check_indexes(&self, query: &Query) -> Result<(), Status> {
        index::check_exemptions(query, &self.exempted)?;
        if self.composite_indexes { Ok(()) } else { index::check(&query.conditions, &query.orders) }
    }

    /// What the journal says, if there is one.
    pub(crate) fn new(journal: Option<&Path>, mode: Mode) -> io::Result<Self> {
        let mut clock = Clock::default();
        let mut state = Self {
            documents: Documents::new(if journal.is_some() { 0 } else { clock.read() }),
            clock,
            transactions: Transactions::new(),
            mode,
            counts: Counts::default(),
            composite_indexes: false,
            exempted: BTreeSet::new(),
            journal: None,
        };
        if let Some(path) = journal {
            let (journal, entries) = Journal::open(path)?;
            for entry in entries {
                state.replay(entry);
            }
            state.journal = Some(journal);
        }
        Ok(state)
    }

    fn replay(&mut self, entry: Entry) {
        let written = entry.written.into_iter().map(|document| (document.name.clone(), Some(Arc::new(document))));
        let after: BTreeMap<String, Option<Arc<Document>>> =
            written.chain(entry.deleted.into_iter().map(|name| (name, None))).collect();
        let before = |name: &str| self.documents.get(name).cloned();
        let changes = after.into_iter().map(|(name, after)| Change { before: before(&name), name, after }).collect();
        self.clock.committed(entry.time);
        self.documents.apply(entry.time, changes);
    }

    /// Commits, unless that has to wait for others: then nothing is returned, and the committer is
    /// written down as one that waits. Whatever else comes of it ends the transaction.
    pub(crate) fn try_commit(&mut self, by: Committer, writes: &[Write]) -> Result<Option<CommitResponse>, Status> {
        self.transactions.waiting.remove(by.party);
        let result = self.commit_or_wait(by, writes);
        if by.in_transaction && !matches!(result, Ok(None)) {
            self.transactions.end(by.party);
        }
        result
    }

    fn commit_or_wait(&mut self, by: Committer, writes: &[Write]) -> Result<Option<CommitResponse>, Status> {
        if by.in_transaction {
            self.transactions.check(by.party)?;
            if self.transactions.is_read_only(by.party) && !writes.is_empty() {
                return Err(Status::invalid_argument("Cannot modify entities in a read-only transaction."));
            }
        }
        let time = self.clock.next_commit();
        let plan = Plan::make(&self.documents, writes, time)?;
        let readers = self.transactions.readers(&plan.changes, by.party);
        if self.mode == Mode::Pessimistic && !readers.is_empty() {
            return self.wait(by.party, readers, plan.changes).map(|()| None);
        }
        let commit_time = Some(timestamp(time));
        let response = CommitResponse { write_results: plan.results.clone(), commit_time };
        let (updates, deletes) = (plan.updates, plan.deletes);
        let changes = plan.effective();
        if !changes.is_empty() {
            if let Some(journal) = &mut self.journal {
                journal.append(time, &changes).map_err(|error| Status::internal(format!("journal: {error}")))?;
            }
            let outdated = self.transactions.readers(&changes, by.party);
            if self.mode != Mode::Careless {
                self.transactions.make_stale(&outdated);
            }
            self.clock.committed(time);
            self.documents.apply(time, changes);
        }
        if by.counted {
            self.counts.add_writes(updates, deletes);
        }
        Ok(Some(response))
    }

    /// One that would wait for itself is aborted instead.
    fn wait(&mut self, party: Party, blockers: BTreeSet<Party>, changes: Vec<Change>) -> Result<(), Status> {
        if self.transactions.waiting.is_deadlock(party, &blockers) {
            return Err(aborted());
        }
        self.transactions.waiting.add(party, blockers, changes);
        Ok(())
    }
}
