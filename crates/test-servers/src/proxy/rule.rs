use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Tells whether a rule of a [`Proxy`](crate::Proxy) has acted. Dropping it changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    state: Arc<(Mutex<bool>, Condvar)>,
}

/// What to do with a request.
#[derive(Debug)]
pub(super) enum Action {
    CutBefore,
    CutAfter,
    Garble(Vec<u8>),
    Stall,
}

impl Rule {
    /// Whether it has acted, to the end: the connection is cut, the garbage sent, the reply
    /// received and withheld.
    #[must_use]
    pub fn fired(&self) -> bool {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has acted, or `timeout` has passed. Returns whether it has.
    #[must_use]
    pub fn wait_fired(&self, timeout: Duration) -> bool {
        let (fired, changed) = &*self.state;
        let guard = fired.lock().unwrap_or_else(PoisonError::into_inner);
        let result = changed.wait_timeout_while(guard, timeout, |fired| !*fired);
        *result.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn fire(&self) {
        let (fired, changed) = &*self.state;
        *fired.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}
