use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::{CommitResponse, Document, Write};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::clock::Micros;
use crate::data::query::Query;
use crate::failure::aborted;
use crate::state::{Committer, Mode, State};
use crate::transaction::{Party, Reads};

/// How often one that waits looks for transactions that have expired, of which nobody tells.
const EXPIRY_CHECK: Duration = Duration::from_millis(20);

/// The databases: all reads and commits, and the waiting for each other.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Told when somebody who waits may have to wait no longer.
    released: Notify,
    /// Told of every commit.
    commits: watch::Sender<()>,
}

/// In which transaction something is read.
#[derive(Debug)]
pub(crate) enum Consistency {
    /// In none.
    Latest,
    /// In one that has begun.
    In(Vec<u8>),
    /// In one that begins with it.
    New { read_only: bool },
}

/// What to read.
#[derive(Debug)]
pub(crate) enum Lookup {
    Documents(Vec<String>),
    Query(Box<Query>),
}

/// What was read, all of it at the same moment.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The id of the transaction, if it began with this.
    pub(crate) transaction: Option<Vec<u8>>,
    pub(crate) time: Micros,
    pub(crate) documents: Vec<(String, Option<Arc<Document>>)>,
    /// The number of documents that a query has passed over.
    pub(crate) skipped: usize,
}

impl Engine {
    pub(crate) fn new(state: State) -> Self {
        Self { state: Mutex::new(state), released: Notify::new(), commits: watch::Sender::new(()) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of every commit from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.commits.subscribe()
    }

    /// Lets everybody who waits look again.
    pub(crate) fn wake(&self) {
        self.released.notify_waiters();
    }

    pub(crate) fn begin(&self, read_only: bool) -> Vec<u8> {
        let mut state = self.state();
        let party = state.transactions.begin(read_only);
        state.transactions.id(party)
    }

    pub(crate) fn roll_back(&self, transaction: &[u8]) -> Result<(), Status> {
        let mut state = self.state();
        let party = state.transactions.find(transaction)?;
        state.transactions.end(party);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Reads, after those who already wait to change what is read in a transaction.
    pub(crate) async fn read(&self, consistency: Consistency, lookup: Lookup) -> Result<Answer, Status> {
        let (party, is_new) = {
            let mut state = self.state();
            if let Lookup::Query(query) = &lookup {
                state.check_indexes(query)?;
            }
            match consistency {
                Consistency::Latest => (None, false),
                Consistency::In(id) => (Some(state.transactions.find(&id)?), false),
                Consistency::New { read_only } => (Some(state.transactions.begin(read_only)), true),
            }
        };
        if let Some(party) = party {
            self.queue(party, &lookup).await;
        }
        let mut state = self.state();
        if let Some(party) = party {
            state.transactions.check(party)?;
        }
        let (mut answer, reads) = state.look_up(&lookup);
        if let Some(party) = party {
            state.transactions.has_read(party, reads);
            answer.transaction = is_new.then(|| state.transactions.id(party));
        }
        Ok(answer)
    }

    /// Waits until nobody else waits to change what is about to be read.
    async fn queue(&self, party: Party, lookup: &Lookup) {
        let waiter = Waiter { engine: self, party };
        let reads = lookup.reads();
        let _: Option<()> = waiter
            .retry(|state| {
                state.transactions.waiting.remove(party);
                let is_free = state.mode != Mode::Pessimistic || state.transactions.is_read_only(party);
                let ahead = if is_free { BTreeSet::new() } else { state.transactions.waiting.ahead_of(party, &reads) };
                if ahead.is_empty() {
                    return Some(());
                }
                state.transactions.waiting.add(party, ahead, Vec::new());
                None
            })
            .await;
    }

    /// Commits writes that were found valid, counting them unless a test made them by itself.
    pub(crate) async fn commit(
        &self,
        transaction: &[u8],
        writes: &[Write],
        counted: bool,
    ) -> Result<CommitResponse, Status> {
        let by = {
            let mut state = self.state();
            let in_transaction = !transaction.is_empty();
            let party = match in_transaction {
                true => state.transactions.find(transaction)?,
                false => state.transactions.new_party(),
            };
            Committer { party, in_transaction, counted }
        };
        let waiter = Waiter { engine: self, party: by.party };
        let result = waiter.retry(|state| state.try_commit(by, writes).transpose()).await;
        if result.is_none() && by.in_transaction {
            self.state().transactions.end(by.party);
        }
        drop(waiter);
        self.wake();
        let response = result.unwrap_or_else(|| Err(aborted()))?;
        self.commits.send_replace(());
        Ok(response)
    }
}

impl Lookup {
    /// What is read if nothing of it exists yet.
    fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        match self {
            Self::Documents(names) => reads.add_documents(names.iter().cloned()),
            Self::Query(query) => reads.add_query(Query::clone(query), None),
        }
        reads
    }
}

impl State {
    fn look_up(&mut self, lookup: &Lookup) -> (Answer, Reads) {
        let time = self.clock.read();
        let mut answer = Answer { transaction: None, time, documents: Vec::new(), skipped: 0 };
        let mut reads = Reads::default();
        match lookup {
            Lookup::Documents(names) => {
                let found = names.iter().map(|name| (name.clone(), self.documents.get(name).cloned()));
                answer.documents = found.collect();
                reads.add_documents(names.iter().cloned());
            }
            Lookup::Query(query) => {
                let found = query.run(self.documents.current());
                reads.add_query(Query::clone(query), query.last_seen(&found));
                answer.skipped = found.skipped;
                let documents = found.documents.into_iter();
                answer.documents = documents.map(|document| (document.name.clone(), Some(document))).collect();
            }
        }
        (answer, reads)
    }
}

/// One that may have to wait. When it is dropped, for whatever reason, it waits no more.
struct Waiter<'a> {
    engine: &'a Engine,
    party: Party,
}

impl Waiter<'_> {
    /// Tries until something comes of it, or it has taken too long.
    async fn retry<T>(&self, mut attempt: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + self.engine.state().transactions.limits.lock_wait;
        loop {
            let mut released = pin!(self.engine.released.notified());
            // Hears of what happens between the attempt and the wait.
            released.as_mut().enable();
            if let Some(result) = attempt(&mut self.engine.state()) {
                return Some(result);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            let _ = timeout_at(deadline.min(now + EXPIRY_CHECK), released).await;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.engine.state().transactions.waiting.remove(self.party) {
            self.engine.wake();
        }
    }
}
