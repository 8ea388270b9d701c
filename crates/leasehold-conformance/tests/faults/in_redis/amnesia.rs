//! What a server does that forgets.

use leasehold::Key;
use leasehold_conformance::history::{History, What};

/// A server that forgets its locks ends them all, as an operator would by force: whoever held one
/// may not be alone any more. The checker forgives that to locks asked for before
/// [`over`](Amnesia::over), and nothing else: fences must rise all the same, and locks asked for
/// later exclude each other.
pub(crate) struct Amnesia {
    history: History,
    keys: Vec<Key>,
}

impl Amnesia {
    pub(crate) fn begins(history: &History, keys: impl IntoIterator<Item = Key>) -> Self {
        let keys: Vec<Key> = keys.into_iter().collect();
        keys.iter().for_each(|key| history.record(key.as_str(), "amnesia", What::ForceSent));
        Self { history: history.clone(), keys }
    }

    /// The server has forgotten all that it will forget.
    pub(crate) fn over(self) {
        self.keys.iter().for_each(|key| self.history.record(key.as_str(), "amnesia", What::ForceAnswered));
    }
}
