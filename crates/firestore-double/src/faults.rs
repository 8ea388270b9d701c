use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tonic::{Code, Status};

/// What goes wrong.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The call is answered by an error.
    Fail(Code, String),
    /// The call takes longer.
    Delay(Duration),
    /// The call is never answered.
    Silence,
    /// The connection of the call is closed.
    CloseConnection,
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything is done.
    Before,
    /// When all is done, and only the answer is missing.
    After,
}

/// Something that is to go wrong.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The call that it hits, or `*`.
    pub(crate) method: String,
    pub(crate) moment: Moment,
    pub(crate) action: Action,
    /// How often still; without a number until it is cleared.
    pub(crate) times: Option<u64>,
    /// What a request must contain to be hit.
    pub(crate) contains: Option<String>,
    /// How likely a call that could be hit is.
    pub(crate) chance: Option<(f64, Rng)>,
    pub(crate) hits: u64,
}

/// All that is to go wrong.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to this call: any number of delays, and then at most one thing that ends it.
    pub(crate) fn take(&self, method: &str, moment: Moment, request: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        for fault in self.list().iter_mut() {
            if fault.moment != moment || !fault.hits(method, request) {
                continue;
            }
            actions.push(fault.action.clone());
            if !matches!(fault.action, Action::Delay(_)) {
                break;
            }
        }
        actions
    }
}

impl Fault {
    fn hits(&mut self, method: &str, request: &[u8]) -> bool {
        let concerned = (self.method == "*" || self.method == method)
            && self.times != Some(0)
            && self.contains.as_ref().is_none_or(|text| contains(request, text.as_bytes()))
            && self.chance.as_mut().is_none_or(|(probability, random)| random.f64() < *probability);
        if concerned {
            self.hits += 1;
            self.times = self.times.map(|times| times - 1);
        }
        concerned
    }
}

/// The code with this name, such as `UNAVAILABLE`.
pub(crate) fn code_from_name(name: &str) -> Option<Code> {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    (0..=16).map(Code::from).find(|code| plain(&format!("{code:?}")) == plain(name))
}

/// An error that a test asked for.
pub(crate) fn requested(code: Code, message: &str) -> Status {
    Status::new(code, message)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(code_from_name("UNAVAILABLE"), Some(Code::Unavailable));
        assert_eq!(code_from_name("DEADLINE_EXCEEDED"), Some(Code::DeadlineExceeded));
        assert_eq!(code_from_name("ALREADY_EXISTS"), Some(Code::AlreadyExists));
        assert_eq!(code_from_name("NONSENSE"), None);
    }

    #[test]
    fn a_fault_hits_what_it_was_made_for_and_no_more() {
        let faults = Faults::default();
        faults.list().push(Fault {
            method: "Commit".to_owned(),
            moment: Moment::Before,
            action: Action::Silence,
            times: Some(1),
            contains: Some("locks/a".to_owned()),
            chance: None,
            hits: 0,
        });
        assert!(faults.take("Commit", Moment::After, b"locks/a").is_empty());
        assert!(faults.take("Rollback", Moment::Before, b"locks/a").is_empty());
        assert!(faults.take("Commit", Moment::Before, b"locks/b").is_empty());
        assert_eq!(faults.take("Commit", Moment::Before, b"my locks/a").len(), 1);
        assert!(faults.take("Commit", Moment::Before, b"locks/a").is_empty());
    }
}
