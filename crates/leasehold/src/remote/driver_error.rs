//! A driver's errors in our words.

use std::io;
use std::time::Duration;

use super::resolve::NoThread;
use crate::{Error, ErrorCode, Operation};

/// Whether the server may have done what it was asked before the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    No,
    Maybe,
}

/// A row in a store's table of errors: the code, the message, the hint, and what may have been
/// done.
pub(crate) type Description = (ErrorCode, &'static str, Option<&'static str>, Done);

/// The error that `description` tells of. `sent` tells whether the request had left before it.
pub(crate) fn describe(
    (code, message, hint, done): Description,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    sent: bool,
) -> Error {
    let mut error = Error::new(code, message).with_source(source);
    if let Some(hint) = hint {
        error = error.with_hint(hint);
    }
    if sent && done == Done::Maybe { error.with_outcome_unknown() } else { error }
}

/// The error if it is a limit of this process or host: what it meant for the driver does not matter
/// then.
pub(crate) fn out_of_resources(error: &io::Error) -> Option<Description> {
    if error.get_ref().is_some_and(|inner| inner.is::<NoThread>()) {
        let (message, hint) = (
            "cannot start the thread that looks up the name of the host",
            "the limit on threads of this process may be too low",
        );
        return Some((ErrorCode::Internal, message, Some(hint), Done::No));
    }
    out_of_files(error)
}

/// The error if it is that no more files may be opened, sockets included.
fn out_of_files(error: &io::Error) -> Option<Description> {
    const OF_PROCESS: i32 = 24;
    const OF_HOST: i32 = 23;
    let (message, hint) = match error.raw_os_error()? {
        OF_PROCESS => (
            "this process may not open any more files",
            "raise its limit, for example with ulimit -n, or look for what it keeps open",
        ),
        OF_HOST => ("this host cannot open any more files", "look for the process that keeps them open"),
        _ => return None,
    };
    Some((ErrorCode::ServiceUnavailable, message, Some(hint), Done::No))
}

/// The same for a driver that does not tell: whether a file can be opened right now.
pub(crate) fn no_file_can_be_opened() -> Option<Description> {
    std::fs::File::open("/").err().and_then(|error| out_of_files(&error))
}

/// The store could not even be reached in time, so nothing was asked of it.
pub(crate) fn not_connected_in_time(operation: Operation, after: Duration) -> Error {
    Error::new(ErrorCode::NetworkTimeout, format!("no connection to the store within {after:?}"))
        .with_hint("check that the store is up and reachable, and that both or neither use TLS")
        .during(operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_files_is_told_from_other_troubles() {
        let code = |number| out_of_files(&io::Error::from_raw_os_error(number)).map(|(code, ..)| code);
        assert_eq!([code(24), code(23)], [Some(ErrorCode::ServiceUnavailable); 2]);
        assert_eq!([code(2), code(13), code(111)], [None; 3]);
    }
}
