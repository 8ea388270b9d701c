//! A driver's errors in our words.

use std::time::Duration;

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

/// The store could not even be reached in time, so nothing was asked of it.
pub(crate) fn not_connected_in_time(operation: Operation, after: Duration) -> Error {
    Error::new(ErrorCode::NetworkTimeout, format!("no connection to the store within {after:?}"))
        .with_hint("check that the store is up and reachable, and that both or neither use TLS")
        .during(operation)
}
