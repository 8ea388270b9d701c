use crate::{Error, Loss};

/// What the store said when it was asked to extend or release a lock of ours. That the lock is lost
/// is an answer, not a failure of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost lock must not be used any more"]
pub(super) enum Ownership {
    /// It was still ours.
    Ours,
    /// It was not ours any more.
    Lost(Loss),
}

impl Ownership {
    /// For callers outside, to whom the loss of a lock is an error.
    pub(super) fn or_lost(self) -> Result<(), Error> {
        match self {
            Ownership::Ours => Ok(()),
            Ownership::Lost(loss) => Err(Error::lost(loss)),
        }
    }
}
