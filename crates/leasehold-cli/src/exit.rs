//! Exit codes: what they are, what they mean, and which error leads to which.

use std::io;
use std::process::ExitCode;

use leasehold::{Error, ErrorCode};
use rustix::process::{Resource, Rlimit, kill_current_process_group, setrlimit};

use crate::event::Level;
use crate::signals::Signal;
use crate::text;

/// `show`, `force-release` and `migrate`: there is nothing to show or to release, or the user said
/// no.
pub(crate) const NOTHING: u8 = 1;
/// A flag, key, duration or lock id is wrong.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Somebody else holds the lock.
pub(crate) const HELD: u8 = 75;
/// The store does not let us.
pub(crate) const NOT_ALLOWED: u8 = 77;
/// The store or its configuration is bad.
pub(crate) const BAD_STORE: u8 = 78;
/// The lock was lost.
pub(crate) const LOST: u8 = 79;
/// The command cannot be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// What `--help` and the reference say.
pub(crate) const TABLE: &[(&str, &str)] = &[
    ("0", "done; `run`: CMD ended with 0"),
    (
        "1",
        "`show`, `force-release`: nobody holds the lock, or not with this --fence; `force-release`, `migrate`: you said no",
    ),
    ("64", "usage: a wrong flag, key, duration or lock id"),
    ("69", "the store is unavailable"),
    ("75", "somebody else holds the lock, or is first in line (another code with -E)"),
    ("77", "the store does not allow it"),
    ("78", "the store or its configuration is bad"),
    ("79", "the lock was lost, or one of several; `extend`, `release`: it is not there any more"),
    ("126", "`run`: CMD cannot be executed"),
    ("127", "`run`: CMD was not found"),
    ("128+N", "ended by signal N, as shells show it"),
    ("other", "`run`: CMD's own exit code"),
];

/// The table as it stands at the end of `--help`.
pub(crate) fn help() -> String {
    let lines = TABLE.iter().map(|(code, meaning)| format!("  {code:<6} {meaning}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

/// How we end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Code(u8),
    /// By this signal, so that a shell stops the script or the loop that we are part of.
    Signal(Signal),
    /// By this signal, which the terminal has sent to the command alone. Without us, it would have
    /// sent it to all that share our process group: the script around us too.
    Interrupted(Signal),
}

impl End {
    /// Ends this process by the signal if that is how it has to end; otherwise tells its exit code.
    /// Everything must be done by then.
    pub(crate) fn finish(self) -> ExitCode {
        let signal = match self {
            End::Code(code) => return ExitCode::from(code),
            End::Signal(signal) => signal,
            End::Interrupted(signal) => {
                let _ = kill_current_process_group(signal.to_send());
                signal
            }
        };
        // No signal ends the first process of a container by default.
        if !rustix::process::getpid().is_init() {
            // If there is anything to be learnt from a core, then from that of the command.
            let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
            // Returns for those that it does not know.
            let _ = signal_hook::low_level::emulate_default_handler(signal.number());
        }
        ExitCode::from(of_signal(signal.number()))
    }
}

/// The exit code for a signal that ended us or the command, as shells show it.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Why the command ends without having done what was asked: one line, perhaps a hint, and the exit
/// code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The errors below, outermost first; shown with `-v`.
    pub(crate) causes: Vec<String>,
    /// How much somebody wants to know it.
    pub(crate) level: Level,
    /// Whether it is the store that failed, so that people want to know which.
    pub(crate) of_store: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, causes: Vec::new(), level: Level::Problem, of_store: false }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// For those who do not want to know it as much as an error.
    pub(crate) fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// With the address of the store, if that is what failed.
    pub(crate) fn at(mut self, store: Option<&str>) -> Self {
        if let Some(store) = store.filter(|_| self.of_store) {
            self.message = format!("{}: {}", store.trim_end_matches(':'), self.message);
            self.of_store = false;
        }
        self
    }

    /// An error in what the user typed.
    pub(crate) fn usage(error: &Error) -> Self {
        Self { code: USAGE, of_store: false, ..Self::from(error) }
    }

    /// The system does not tell us of signals.
    pub(crate) fn signals(error: &io::Error) -> Self {
        Self::new(UNAVAILABLE, format!("cannot listen to signals: {error}"))
    }

    /// The reader of our output is gone, or the disk it went to is full.
    pub(crate) fn output(error: &io::Error) -> Self {
        let broken_pipe = of_signal(rustix::process::Signal::PIPE.as_raw());
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(broken_pipe, String::new()),
            _ => Self::new(UNAVAILABLE, format!("cannot write the output: {error}")),
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let mut causes = Vec::new();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            causes.push(text::one_line(&cause.to_string()));
            source = cause.source();
        }
        // Without anybody to name, nobody has the lock: it was the store that did not answer in
        // time.
        let unanswered = error.code() == ErrorCode::AcquisitionTimeout && error.contention().is_none();
        let code = match error.is_about_key() {
            true => USAGE,
            false if unanswered => UNAVAILABLE,
            false => of_error(error.code()),
        };
        let message = if unanswered {
            "the store did not answer in the time given to wait".to_owned()
        } else {
            text::one_line(&error.to_string())
        };
        let of_store = matches!(code, UNAVAILABLE | NOT_ALLOWED | BAD_STORE);
        Self { code, message, hint: error.hint().map(text::one_line), causes, level: Level::Problem, of_store }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// The exit code of each error code of the library.
pub(crate) fn of_error(code: ErrorCode) -> u8 {
    match code {
        // What the user typed was checked when it was parsed, so it is the URL or the store itself
        // that is wrong.
        ErrorCode::InvalidArgument
        // A fence that goes back, an answer that makes no sense: this store cannot be trusted.
        | ErrorCode::Internal => BAD_STORE,
        ErrorCode::ServiceUnavailable
        | ErrorCode::RateLimited
        | ErrorCode::NetworkTimeout
        // Only a handle that is being shut down says so unasked.
        | ErrorCode::Aborted => UNAVAILABLE,
        ErrorCode::AcquisitionTimeout => HELD,
        ErrorCode::AuthFailed => NOT_ALLOWED,
        ErrorCode::LockLost => LOST,
        _ => BAD_STORE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_code_has_its_exit_code() {
        let table = [
            (ErrorCode::ServiceUnavailable, 69),
            (ErrorCode::AuthFailed, 77),
            (ErrorCode::InvalidArgument, 78),
            (ErrorCode::RateLimited, 69),
            (ErrorCode::NetworkTimeout, 69),
            (ErrorCode::AcquisitionTimeout, 75),
            (ErrorCode::Aborted, 69),
            (ErrorCode::LockLost, 79),
            (ErrorCode::Internal, 78),
        ];
        for (code, exit) in table {
            assert_eq!(of_error(code), exit, "{code:?}");
            assert!(TABLE.iter().any(|(documented, _)| *documented == exit.to_string()), "{exit} is not documented");
        }
    }

    #[test]
    fn a_wrong_url_is_bad_configuration_but_a_wrong_argument_is_bad_usage() {
        let error = Error::new(ErrorCode::InvalidArgument, "wrong");
        assert_eq!(Failure::from(&error).code, BAD_STORE);
        assert_eq!(Failure::usage(&error).code, USAGE);
    }

    #[test]
    fn waiting_in_vain_without_seeing_a_holder_means_the_store_was_silent() {
        let error = Error::new(ErrorCode::AcquisitionTimeout, "gave up");
        assert_eq!(Failure::from(&error).code, UNAVAILABLE);
    }

    #[test]
    fn messages_are_one_line_and_keep_their_hint_and_causes() {
        let error = Error::new(ErrorCode::Internal, "two\nlines").with_hint("do").with_source(io::Error::other("why"));
        let failure = Failure::from(&error);
        assert_eq!((failure.message.as_str(), failure.hint.as_deref()), ("two lines", Some("do")));
        assert_eq!(failure.causes, ["why"]);
    }

    #[test]
    fn the_table_names_each_command_that_ends_with_1() {
        let (_, meaning) = TABLE.iter().find(|(code, _)| *code == "1").unwrap();
        assert!(["show", "force-release", "migrate"].iter().all(|name| meaning.contains(name)), "{meaning}");
    }

    #[test]
    fn signals_count_from_128() {
        assert_eq!((of_signal(2), of_signal(15), of_signal(64)), (130, 143, 192));
    }
}
