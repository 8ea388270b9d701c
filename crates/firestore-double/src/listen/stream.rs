use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::Arc;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_request::TargetChange;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::ResumeType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target_change::TargetChangeType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    ListenRequest, ListenResponse, Target as TargetRequest,
};
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::delta::Deltas;
use super::messages::{current, removed, snapshot, target_change, time_of_token};
use super::registry::Interests;
use super::service::ListenService;
use super::target::{Scope, Target};
use crate::clock::{Micros, micros};
use crate::connections::ConnectionId;
use crate::faults::Moment;
use crate::name::Database;
use crate::server::{Call, Server};
use crate::state::State;

/// One open stream.
///
/// It never holds up a commit: it reads the history at its own pace, and one that has fallen behind
/// the history starts afresh.
pub(super) struct ListenStream {
    server: Arc<Server>,
    id: u64,
    targets: BTreeMap<i32, Target>,
    /// Everything up to this time has been told.
    position: Micros,
    sender: mpsc::Sender<Result<ListenResponse, Status>>,
    connection: Option<ConnectionId>,
}

impl ListenStream {
    pub(super) fn new(
        server: Arc<Server>,
        sender: mpsc::Sender<Result<ListenResponse, Status>>,
        connection: Option<ConnectionId>,
    ) -> Self {
        let id = server.listeners.register();
        Self { server, id, targets: BTreeMap::new(), position: 0, sender, connection }
    }

    /// Listens until either side ends it.
    pub(super) async fn run(mut self, requests: Streaming<ListenRequest>) {
        let mut closing = self.server.listeners.closing();
        let sender = self.sender.clone();
        let result = tokio::select! {
            result = self.listen(requests) => result,
            _ = closing.changed() => {
                let reason = closing.borrow().clone();
                Err(reason.unwrap_or_else(|| Status::unavailable("The stream is closed.")))
            }
            () = sender.closed() => Ok(()),
        };
        drop(self);
        if let Err(status) = result {
            // Whoever is gone need not be told.
            let _ = sender.send(Err(status)).await;
        }
    }

    async fn listen(&mut self, mut requests: Streaming<ListenRequest>) -> Result<(), Status> {
        let mut commits = self.server.engine.subscribe();
        let mut muting = self.server.listeners.muting();
        loop {
            let is_muted = *muting.borrow_and_update();
            tokio::select! {
                request = requests.message() => match request? {
                    Some(request) => self.handle(request).await?,
                    None => return Ok(()),
                },
                _ = commits.changed(), if !is_muted => {
                    let messages = self.catch_up();
                    self.send(messages).await?;
                }
                _ = muting.changed() => {}
            }
        }
    }

    async fn handle(&mut self, request: ListenRequest) -> Result<(), Status> {
        let bytes = request.encode_to_vec();
        let call = Call { method: ListenService::NAME, request: &bytes, connection: self.connection };
        let server = Arc::clone(&self.server);
        server.fault(&call, Moment::Before).await?;
        let database = Database::of(&request.database)?;
        server.databases.check(&database)?;
        let messages = match request.target_change {
            Some(TargetChange::AddTarget(target)) => self.add(&database, target)?,
            Some(TargetChange::RemoveTarget(id)) => {
                self.targets.remove(&id);
                vec![removed(id, None)]
            }
            None => Vec::new(),
        };
        self.publish();
        self.send(messages).await?;
        server.fault(&call, Moment::After).await
    }

    /// Starts to listen to something. A target that cannot be is removed again.
    fn add(&mut self, database: &Database, request: TargetRequest) -> Result<Vec<ListenResponse>, Status> {
        let unused = self.targets.keys().last().map_or(1, |last| last + 1);
        let id = if request.target_id == 0 { unused } else { request.target_id };
        if self.targets.contains_key(&id) {
            return Err(Status::invalid_argument(format!("Target {id} is in use.")));
        }
        let mut messages = self.catch_up();
        let server = Arc::clone(&self.server);
        let mut state = server.engine.state();
        let scope = match Scope::parse(database, request.target_type).and_then(|scope| check_index(&state, scope)) {
            Ok(scope) => scope,
            Err(cause) => {
                messages.push(removed(id, Some(&cause)));
                return Ok(messages);
            }
        };
        messages.push(target_change(TargetChangeType::Add, id));
        let mut target = Target::new(id, scope);
        let mut deltas = Deltas::default();
        let resumed = match request.resume_type {
            None => None,
            Some(ResumeType::ResumeToken(token)) if token.is_empty() => None,
            Some(ResumeType::ResumeToken(token)) => Some(time_of_token(&token)),
            Some(ResumeType::ReadTime(time)) => Some(Some(micros(&time))),
        };
        let resumable = resumed.flatten().filter(|time| *time <= state.clock.now());
        let before = resumable.and_then(|time| state.documents.at(time));
        match &before {
            Some(before) => target.assume(before),
            None if resumed.is_some() => messages.push(target_change(TargetChangeType::Reset, id)),
            None => {}
        }
        target.refresh(state.documents.current(), &mut deltas);
        let mut reads = deltas.reads();
        if before.is_none() {
            reads += hide_missing(&target, &state, &mut deltas);
        }
        state.counts.add_reads(if matches!(target.scope, Scope::Query(_)) { reads.max(1) } else { reads });
        let time = state.clock.read();
        messages.extend(deltas.into_messages(time));
        messages.push(current(id, time));
        messages.push(snapshot(time));
        self.targets.insert(id, target);
        self.position = time;
        Ok(messages)
    }

    /// Tells of every commit since the last time, or of everything if not all of them are known.
    fn catch_up(&mut self) -> Vec<ListenResponse> {
        let server = Arc::clone(&self.server);
        let mut state = server.engine.state();
        let time = state.clock.read();
        let position = replace(&mut self.position, time);
        if self.targets.is_empty() {
            return Vec::new();
        }
        let Some(commits) = state.documents.history().after(position) else {
            return self.start_afresh(&mut state, time);
        };
        let mut messages = Vec::new();
        let mut reads = 0;
        let mut tell = |deltas: Deltas, time| {
            if !deltas.is_empty() {
                reads += deltas.reads();
                messages.extend(deltas.into_messages(time));
                messages.push(snapshot(time));
            }
        };
        for commit in commits {
            let mut deltas = Deltas::default();
            for target in self.targets.values_mut().filter(|target| !target.is_limited()) {
                commit.changes.iter().for_each(|change| target.apply(change, &mut deltas));
            }
            tell(deltas, commit.time);
        }
        let mut deltas = Deltas::default();
        for target in self.targets.values_mut().filter(|target| target.is_limited()) {
            target.refresh(state.documents.current(), &mut deltas);
        }
        tell(deltas, time);
        state.counts.add_reads(reads);
        messages
    }

    fn start_afresh(&mut self, state: &mut State, time: Micros) -> Vec<ListenResponse> {
        let mut messages: Vec<_> = self.targets.keys().map(|id| target_change(TargetChangeType::Reset, *id)).collect();
        let mut deltas = Deltas::default();
        for target in self.targets.values_mut() {
            target.reset();
            target.refresh(state.documents.current(), &mut deltas);
        }
        state.counts.add_reads(deltas.reads());
        messages.extend(deltas.into_messages(time));
        messages.extend(self.targets.keys().map(|id| current(*id, time)));
        messages.push(snapshot(time));
        messages
    }

    async fn send(&self, messages: Vec<ListenResponse>) -> Result<(), Status> {
        for message in messages {
            self.sender.send(Ok(message)).await.map_err(|_| Status::cancelled("The client is gone."))?;
        }
        Ok(())
    }

    /// Lets tests see what is listened to.
    fn publish(&self) {
        let mut interests = Interests::default();
        for target in self.targets.values() {
            match &target.scope {
                Scope::Documents(names) => interests.documents.extend(names.iter().cloned()),
                Scope::Query(query) => interests.collections.push(query.collection.clone()),
            }
        }
        self.server.listeners.update(self.id, interests);
    }
}

impl Drop for ListenStream {
    fn drop(&mut self) {
        self.server.listeners.remove(self.id);
    }
}

fn check_index(state: &State, scope: Scope) -> Result<Scope, Status> {
    if let Scope::Query(query) = &scope {
        state.check_indexes(query)?;
    }
    Ok(scope)
}

/// Tells of documents that were asked for by name and do not exist, each of which is a read.
fn hide_missing(target: &Target, state: &State, deltas: &mut Deltas) -> usize {
    let Scope::Documents(names) = &target.scope else { return 0 };
    let missing = names.iter().filter(|name| state.documents.get(name).is_none());
    missing.map(|name| deltas.hide(target.id, name, None)).count()
}
