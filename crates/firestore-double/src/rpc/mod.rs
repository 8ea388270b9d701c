//! The calls that are answered at once, one after the other: all but `Listen`.

mod aggregation;
mod documents;
mod query;
mod service;
mod transaction;

use std::future::Future;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::TransactionOptions;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::transaction_options::Mode;
use prost::Message;
use tonic::Status;

pub(crate) use service::FirestoreService;

use crate::access::Need;
use crate::engine::Consistency;
use crate::failure::unknown;
use crate::name::Database;
use crate::server::Server;

/// A request, and how it is answered.
pub(crate) trait Rpc: Message + Default + 'static {
    /// What the protocol calls it.
    const NAME: &'static str;

    type Response: Message + 'static;

    /// The database that it is about.
    fn database(&self) -> Result<Database, Status>;

    fn need(&self) -> Need;

    /// Does it. A call with one answer is on the wire the same as a stream of one.
    fn run(self, server: &Server) -> impl Future<Output = Result<Vec<Self::Response>, Status>> + Send;
}

/// Whether a transaction may only read.
fn is_read_only(options: Option<&TransactionOptions>) -> bool {
    matches!(options.and_then(|options| options.mode.as_ref()), Some(Mode::ReadOnly(_)))
}

/// What beginning such a transaction needs.
fn need_of(options: Option<&TransactionOptions>) -> Need {
    if is_read_only(options) { Need::Read } else { Need::Write }
}

/// The selectors of the calls that read differ only in their types.
macro_rules! consistency {
    ($selector:expr, $type:ident) => {
        match $selector {
            None => Ok($crate::engine::Consistency::Latest),
            Some($type::Transaction(id)) => Ok($crate::engine::Consistency::In(id)),
            Some($type::NewTransaction(options)) => {
                Ok($crate::engine::Consistency::New { read_only: $crate::rpc::is_read_only(Some(&options)) })
            }
            Some($type::ReadTime(_)) => Err($crate::rpc::no_past()),
        }
    };
}
pub(crate) use consistency;

/// What reading with such a selector needs.
macro_rules! need {
    ($selector:expr, $type:ident) => {
        match $selector {
            Some($type::NewTransaction(options)) => $crate::rpc::need_of(Some(options)),
            _ => $crate::access::Need::Read,
        }
    };
}
pub(crate) use need;

fn no_past() -> Status {
    unknown("reads at a time in the past")
}

/// In a transaction that was begun before, or in none.
fn transaction_or_latest(transaction: Option<Vec<u8>>) -> Consistency {
    transaction.map_or(Consistency::Latest, Consistency::In)
}
