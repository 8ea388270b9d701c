//! Read-write transactions: what they have read, who waits for whom, and when they expire.

mod open;
mod reads;
mod waiting;

pub(crate) use open::Transactions;
pub(crate) use reads::Reads;
pub(crate) use waiting::Waiting;

/// Names whoever can wait: a transaction, or a commit without one.
pub(crate) type Party = u64;
