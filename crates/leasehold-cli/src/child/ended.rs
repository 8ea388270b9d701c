use rustix::process::Signal as Sig;

use super::job::Status;
use crate::exit::{self, End};
use crate::signals::Signal;

/// Why a command was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// We got this signal.
    Signal(Signal),
    /// The lock is lost, or was about to be.
    Lost,
}

/// How a command came to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// None if it cannot be killed.
    pub(super) status: Option<Status>,
    /// Why it was stopped, if it did not end by itself.
    pub(crate) cause: Option<Cause>,
    /// Whether it ended by Ctrl-C, which it alone has got.
    pub(super) interrupted: bool,
    /// Whether we had to kill it, or something that it left.
    pub(super) killed: bool,
}

impl Ended {
    /// How we have to end: as the command did. So a command that expects a signal, and ends with a
    /// code of its own, decides what becomes of the script around us.
    pub(crate) fn end(self) -> End {
        let killed = Status::Signalled(Sig::KILL.as_raw());
        match (self.status, self.cause) {
            // It took no notice of the signal.
            (status, Some(Cause::Signal(signal))) if self.killed && status.is_none_or(|status| status == killed) => {
                End::Signal(signal)
            }
            (None, _) => End::Code(exit::UNAVAILABLE),
            (Some(Status::Exited(code)), _) => End::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (Some(Status::Signalled(number)), _) if self.interrupted => End::Interrupted(Signal::new(number)),
            (Some(Status::Signalled(number)), _) => End::Signal(Signal::new(number)),
        }
    }
}
