use leasehold::backend::Mode;

use super::{Violation, What};

/// What is known of one lock at one point of the history.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// How it is asked for.
    pub(super) mode: Mode,
    /// The number of the permit, if it is one.
    pub(super) slot: Option<u16>,
    pub(super) may_steal: bool,
    /// The highest fence that was answered before this lock was asked for.
    pub(super) floor: Option<u64>,
    pub(super) fence: Option<u64>,
    /// Until when its holder counts on it.
    pub(super) deadline: u64,
    /// Its holder gave it up or noticed the loss.
    pub(super) ended: bool,
    releases_sent: u32,
    pub(super) released: bool,
    /// A higher fence was granted to somebody who cannot have it at the same time.
    pub(super) superseded: bool,
    /// A steal or a forced release that was under way at some moment since it was asked for may
    /// have ended it.
    pub(super) intervened: bool,
    /// It was dead when its latest extend was sent.
    pub(super) extend_too_late: bool,
    /// It was dead when its latest release was sent.
    release_too_late: bool,
}

impl Lock {
    /// Whether its holder and the one of `other` may both have the key, as far as their modes tell.
    pub(super) fn goes_with(&self, other: &Lock) -> bool {
        match (self.mode, other.mode) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Permit { .. }, Mode::Permit { .. }) => self.slot.is_none() || self.slot != other.slot,
            _ => false,
        }
    }

    pub(super) fn apply(&mut self, key: &str, lock: &str, at: u64, what: What) -> Option<Violation> {
        let (key, lock) = (key.to_owned(), lock.to_owned());
        match what {
            What::ReleaseSent => {
                self.release_too_late = self.released || self.superseded;
                self.releases_sent += 1;
                self.ended = true;
            }
            What::ExtendSent { deadline } => {
                self.extend_too_late = self.released || self.superseded;
                // It may take effect without an answer, and it may shorten.
                self.deadline = self.deadline.min(deadline);
            }
            What::Released if self.released => return Some(Violation::ReleasedTwice { key, lock }),
            What::Released => {
                self.released = true;
                if self.release_too_late {
                    return Some(Violation::Resurrected { key, lock });
                }
            }
            What::ReleaseAbsent | What::ExtendAbsent => {
                let cause = self.released || self.superseded || self.intervened;
                // A release of its own, other than this one, may be under way.
                let own = self.releases_sent > u32::from(what == What::ReleaseAbsent);
                self.ended = true;
                if self.fence.is_some() && !cause && !own && at < self.deadline {
                    return Some(Violation::LostWithoutCause { key, lock });
                }
            }
            What::Lost => self.ended = true,
            _ => {}
        }
        None
    }
}
