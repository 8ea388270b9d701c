use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::{Cut, ProxiedConnection};
use super::rule::{Action, Rule};

/// What a [`Proxy`](crate::Proxy) has passed on since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections made by clients, not counting refused ones.
    pub connections: u64,
    /// Chunks read from clients; for clients that wait for each reply, the number of requests.
    pub chunks_from_client: u64,
    /// Bytes read from clients.
    pub bytes_from_client: u64,
    /// Chunks read from the server.
    pub chunks_from_server: u64,
    /// Bytes read from the server.
    pub bytes_from_server: u64,
}

/// What the proxy's handle and its connections share.
#[derive(Debug, Default)]
pub(super) struct Connections {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    refusing: bool,
    stalled: bool,
    /// How many chunks are being written right now.
    in_transit: usize,
    rules: Vec<(Vec<u8>, Action, Rule)>,
    open: HashMap<u64, Arc<ProxiedConnection>>,
    counts: Counts,
}

impl Connections {
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.state().refusing
    }

    pub(super) fn set_refusing(&self, refusing: bool) {
        self.state().refusing = refusing;
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    pub(super) fn open_connections(&self) -> usize {
        self.state().open.len()
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.state().counts);
    }

    pub(super) fn stall(&self) {
        let mut state = self.state();
        state.stalled = true;
        // A client that does not read keeps a chunk in transit for as long as it likes; nobody sees
        // that one arrive.
        let wait = self.changed.wait_timeout_while(state, Duration::from_secs(1), |state| state.in_transit > 0);
        drop(wait);
    }

    pub(super) fn flow(&self) {
        self.state().stalled = false;
        self.changed.notify_all();
    }

    /// Waits while everything is stalled, then does `transfer`. Does nothing for a connection that
    /// was cut meanwhile.
    pub(super) fn pass<T>(&self, connection: &ProxiedConnection, transfer: impl FnOnce() -> T) -> Option<T> {
        let wait = self.changed.wait_while(self.state(), |state| state.stalled && !connection.is_cut());
        let mut state = wait.unwrap_or_else(PoisonError::into_inner);
        if connection.is_cut() {
            return None;
        }
        state.in_transit += 1;
        drop(state);
        let result = transfer();
        self.state().in_transit -= 1;
        self.changed.notify_all();
        Some(result)
    }

    pub(super) fn add_rule(&self, bytes: Vec<u8>, action: Action, rule: Rule) {
        self.state().rules.push((bytes, action, rule));
    }

    /// The oldest rule that this request matches, which no other request will get.
    pub(super) fn take_rule(&self, request: &[u8]) -> Option<(Action, Rule)> {
        let mut state = self.state();
        let found = state.rules.iter().position(|(bytes, ..)| contains(request, bytes))?;
        let (_, action, rule) = state.rules.remove(found);
        Some((action, rule))
    }

    pub(super) fn register(&self, connection: &Arc<ProxiedConnection>) -> u64 {
        let mut state = self.state();
        state.counts.connections += 1;
        let id = state.counts.connections;
        state.open.insert(id, Arc::clone(connection));
        if state.closed {
            connection.cut(Cut::Reset);
        }
        id
    }

    /// Forgets a connection, and so closes its sockets before anybody can see that it is gone.
    pub(super) fn unregister(&self, id: u64, connection: Arc<ProxiedConnection>) {
        let mut state = self.state();
        let last_rule = connection.take_last_rule();
        state.open.remove(&id);
        drop(connection);
        drop(state);
        self.changed.notify_all();
        if let Some(rule) = last_rule {
            rule.fire();
        }
    }

    pub(super) fn cut_all(&self, cut: Cut) {
        let state = self.state();
        let mut cut_now = Vec::new();
        for (id, connection) in &state.open {
            connection.cut(cut);
            cut_now.push(*id);
        }
        self.changed.notify_all();
        let gone = |state: &mut State| cut_now.iter().any(|id| state.open.contains_key(id));
        drop(self.changed.wait_while(state, gone));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contains(request: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || request.windows(bytes.len()).any(|window| window == bytes)
}
