//! The errors that more than one place answers, in the words of the real server.

use tonic::Status;

/// A transaction lost against another.
pub(crate) fn aborted() -> Status {
    Status::aborted(
        "Aborted due to cross-transaction contention. This occurs when multiple transactions attempt to access the \
         same data, requiring Firestore to abort at least one in order to enforce serializability.",
    )
}

/// A transaction id that means nothing, or nothing any more.
pub(crate) fn no_transaction() -> Status {
    Status::invalid_argument("The referenced transaction has expired or is no longer valid.")
}

pub(crate) fn no_permission() -> Status {
    Status::permission_denied("Missing or insufficient permissions.")
}

/// Something of Firestore that nobody has taught the double.
pub(crate) fn unknown(what: &str) -> Status {
    Status::unimplemented(format!("firestore-double does not know {what}"))
}
