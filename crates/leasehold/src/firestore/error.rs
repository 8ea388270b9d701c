//! gRPC's errors as ours.

use std::error::Error as _;

use tonic::{Code, Status};

use super::place::NotConnected;
use crate::remote::driver_error::{Description, Done, describe, out_of_resources};
use crate::{Error, ErrorCode};

const REACHABLE: &str = "check the network, and that the host of the service or emulator can be reached";

const ROLE: &str = "grant the account the role roles/datastore.user: gcloud projects add-iam-policy-binding PROJECT \
    --member=serviceAccount:ACCOUNT --role=roles/datastore.user";

const CREATE: &str =
    "create it: gcloud firestore databases create --project=PROJECT --database=DATABASE --location=nam5";

const INDEX: &str = "lookups need the indexes on lockId and ids, which are there unless they were exempted: gcloud \
    firestore indexes fields update lockId --collection-group=locks --index=query-scope=collection,order=ascending, \
    and the same for ids with --index=query-scope=collection,array-config=contains";

/// A status as our error, in one total table. `wrote` tells whether the request was one to write.
pub(super) fn translate(status: &Status, wrote: bool) -> Error {
    let not_connected = cause::<NotConnected>(status);
    let description = match not_connected {
        Some(NotConnected(error)) => out_of_resources(error).unwrap_or((
            ErrorCode::ServiceUnavailable,
            "the server cannot be reached",
            Some(REACHABLE),
            Done::No,
        )),
        None if is_about_tls(status) => (
            ErrorCode::AuthFailed,
            "the server cannot be trusted, or does not speak TLS",
            Some("check the host and the option ca; an emulator is named by the option emulator"),
            Done::No,
        ),
        // Whatever else is wrong with the database was found out by the reads before.
        None if wrote && is_changed(status) => IN_THE_WAY,
        None => answer(status.code(), status.message()),
    };
    describe(description, Said::new(status), wrote)
}

/// Whether another transaction was in the way, and the whole of this one may be tried again. Of a
/// commit that is so as well if a document was not as it had been read.
pub(super) fn is_conflict(status: &Status, committing: bool) -> bool {
    match status.code() {
        Code::Aborted => true,
        _ => committing && is_changed(status),
    }
}

/// Whether a commit was refused because a document was not as it had been read.
fn is_changed(status: &Status) -> bool {
    let message = status.message();
    match status.code() {
        Code::FailedPrecondition => !is_about_index(message) && !is_about_mode(message),
        Code::AlreadyExists => true,
        Code::NotFound => !is_about_database(message),
        _ => false,
    }
}

/// Whether the server did not take the token.
pub(super) fn is_about_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
}

/// Whether the server itself has said something, rather than that it could not be asked.
pub(super) fn is_answer(status: &Status) -> bool {
    status.source().is_none() && !matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable)
}

/// Whether the client gave up a request whose time was over.
pub(super) fn is_timeout(status: &Status) -> bool {
    cause::<tonic::TimeoutExpired>(status).is_some()
}

/// What a message says before it names a document, whose name may be any word at all: in the words
/// of the service and of the emulator.
fn before_names(message: &str) -> &str {
    let ends = ["/documents/", "path <", "app:"].iter().filter_map(|start| message.find(start));
    &message[..ends.min().unwrap_or(message.len())]
}

fn is_about_database(message: &str) -> bool {
    let message = before_names(message).to_ascii_lowercase();
    message.contains("database") && message.contains("does not exist")
}

fn is_about_index(message: &str) -> bool {
    before_names(message).contains("requires an index")
}

fn is_about_mode(message: &str) -> bool {
    before_names(message).contains("Datastore Mode")
}

/// What is said of a conflict that did not end.
const IN_THE_WAY: Description = (
    ErrorCode::ServiceUnavailable,
    "other transactions were in the way all the time",
    Some("try again; one lock is good for about one change a second"),
    Done::No,
);

fn answer(code: Code, message: &str) -> Description {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, RateLimited, ServiceUnavailable};
    let no = |code, message, hint| (code, message, Some(hint), Done::No);
    match code {
        Code::Ok => (Internal, "an unexpected answer of the server", None, Done::Maybe),
        Code::Cancelled => {
            (ServiceUnavailable, "the server ended the request", Some("try again in a moment"), Done::Maybe)
        }
        Code::Unknown => {
            (ServiceUnavailable, "the connection to the server was lost, or it failed", Some(REACHABLE), Done::Maybe)
        }
        Code::InvalidArgument if before_names(message).contains("transaction") => no(
            ServiceUnavailable,
            "the transaction took too long, and the server gave it up",
            "try again; a host that is very busy may be too slow",
        ),
        Code::InvalidArgument => (InvalidArgument, "the server does not understand the request", None, Done::No),
        Code::DeadlineExceeded => {
            (NetworkTimeout, "the server did not answer in time", Some("try again; see its status page"), Done::Maybe)
        }
        Code::NotFound => no(InvalidArgument, "the project or its database does not exist", CREATE),
        Code::AlreadyExists | Code::Aborted => IN_THE_WAY,
        Code::PermissionDenied if message.contains("API has not been used") || message.contains("is disabled") => no(
            InvalidArgument,
            "the project does not use Firestore",
            "enable it: gcloud services enable firestore.googleapis.com --project=PROJECT",
        ),
        Code::PermissionDenied => no(AuthFailed, "the account lacks a permission on the database", ROLE),
        Code::Unauthenticated => no(
            AuthFailed,
            "the server does not take our credentials",
            "they may be revoked or of another project; and a clock that is wrong by minutes makes tokens invalid",
        ),
        Code::ResourceExhausted => no(
            RateLimited,
            "the database has reached a limit",
            "try again later, or raise the quota or the budget of the project",
        ),
        Code::FailedPrecondition if is_about_index(message) => {
            no(InvalidArgument, "the index for lookups is missing", INDEX)
        }
        Code::FailedPrecondition if is_about_mode(message) => no(
            InvalidArgument,
            "the database is in Datastore mode",
            "use one in native mode: gcloud firestore databases create --database=DATABASE --type=firestore-native",
        ),
        Code::FailedPrecondition => {
            no(ServiceUnavailable, "the database is not in a state for this request", "try again; see its status page")
        }
        Code::OutOfRange => (InvalidArgument, "the server does not understand the request", None, Done::No),
        Code::Unimplemented => {
            (InvalidArgument, "the server is not Firestore in native mode", Some("check the endpoint"), Done::No)
        }
        Code::Internal => {
            (ServiceUnavailable, "the server failed", Some("try again; see its status page"), Done::Maybe)
        }
        Code::Unavailable => {
            (ServiceUnavailable, "the server is not available", Some("try again in a moment"), Done::Maybe)
        }
        Code::DataLoss => (Internal, "the server lost data", Some("ask its operator"), Done::Maybe),
    }
}

/// The cause of this type, however deep.
fn cause<T: std::error::Error + 'static>(status: &Status) -> Option<&T> {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}

fn is_about_tls(status: &Status) -> bool {
    let in_io = |error: &std::io::Error| error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    cause::<rustls::Error>(status).is_some() || cause::<std::io::Error>(status).is_some_and(in_io)
}

/// What the server said, without what it may repeat of documents: their names have keys in them.
#[derive(Debug)]
struct Said(String);

impl Said {
    fn new(status: &Status) -> Self {
        let mut text = format!("{:?}", status.code());
        let mut source = status.source();
        // Those of the connection know nothing of documents.
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        if status.source().is_none() {
            text = format!("{text}: {}", before_names(status.message()));
        }
        Self(text)
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Said {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code there is.
    fn codes() -> impl Iterator<Item = Code> {
        (0..=16).map(Code::from_i32)
    }

    #[test]
    fn every_status_has_its_meaning() {
        use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, RateLimited, ServiceUnavailable};
        let expected = [
            (Internal, true),
            (ServiceUnavailable, true),
            (ServiceUnavailable, true),
            (InvalidArgument, false),
            (NetworkTimeout, true),
            (ServiceUnavailable, false),
            (ServiceUnavailable, false),
            (AuthFailed, false),
            (RateLimited, false),
            (ServiceUnavailable, false),
            (ServiceUnavailable, false),
            (InvalidArgument, false),
            (InvalidArgument, false),
            (ServiceUnavailable, true),
            (ServiceUnavailable, true),
            (Internal, true),
            (AuthFailed, false),
        ];
        assert_eq!(codes().count(), expected.len());
        for (code, (meaning, unknown)) in codes().zip(expected) {
            let error = translate(&Status::new(code, "said"), true);
            assert_eq!((error.code(), error.outcome_unknown()), (meaning, unknown), "{code:?}");
            assert!(!translate(&Status::new(code, "said"), false).outcome_unknown(), "{code:?} of a read");
        }
        assert_eq!(translate(&Status::not_found("said"), false).code(), InvalidArgument);
    }

    #[test]
    fn messages_say_what_to_do() {
        for (code, said, meaning, advice) in [
            (Code::NotFound, "The database (default) does not exist", ErrorCode::InvalidArgument, "databases create"),
            (Code::PermissionDenied, "Missing permissions.", ErrorCode::AuthFailed, "roles/datastore.user"),
            (Code::PermissionDenied, "Cloud API has not been used", ErrorCode::InvalidArgument, "services enable"),
            (Code::FailedPrecondition, "The query requires an index.", ErrorCode::InvalidArgument, "indexes"),
            (Code::FailedPrecondition, "is for Firestore in Datastore Mode", ErrorCode::InvalidArgument, "native"),
            (Code::InvalidArgument, "The referenced transaction has expired", ErrorCode::ServiceUnavailable, "again"),
        ] {
            let error = translate(&Status::new(code, said), true);
            assert_eq!(error.code(), meaning, "{said}");
            assert!(error.hint().is_some_and(|hint| hint.contains(advice)), "{said}: {:?}", error.hint());
        }
    }

    #[test]
    fn only_a_commit_meets_documents_that_have_changed() {
        let of = |code, said: &str, committing| is_conflict(&Status::new(code, said), committing);
        assert!(of(Code::Aborted, "", false) && of(Code::Aborted, "", true));
        for code in [Code::FailedPrecondition, Code::AlreadyExists, Code::NotFound] {
            assert!(of(code, "the stored version does not match", true), "{code:?}");
            assert!(!of(code, "the stored version does not match", false), "{code:?}");
        }
        assert!(!of(Code::NotFound, "The database (default) does not exist for project p", true));
        assert!(of(Code::NotFound, "No document to update: projects/p/databases/d/documents/locks/k", true));
        assert!(!of(Code::FailedPrecondition, "The query requires an index.", true));
        assert!(!of(Code::Unavailable, "", true));
        // The emulator's words for a document that is gone, with a key that says all sorts of things.
        let gone = r#"no entity to update: app: "dev~my-project" path < Element { name: "requires an index" } >"#;
        assert!(of(Code::NotFound, gone, true) && of(Code::FailedPrecondition, gone, true));
    }

    #[test]
    fn what_the_server_says_of_documents_is_not_repeated() {
        for said in [
            "No document to update: projects/p/databases/d/documents/locks/payment:42",
            r#"no entity to update: app: "dev~p" path < Element { type: "locks" name: "payment:42" } >"#,
        ] {
            let error = translate(&Status::not_found(said), true);
            assert!(error.is_retryable() && error.hint().is_some_and(|hint| hint.contains("one change a second")));
            assert!(!format!("{error:?}").contains("payment"), "{error:?}");
        }
    }
}
