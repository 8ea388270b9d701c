use std::error::Error as _;

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::remote::driver_error::{Description, Done, describe, out_of_resources};
use crate::{Error, ErrorCode};

/// The SQLSTATE of a server that takes no writes.
const READ_ONLY: &str = "25006";

/// What our functions raise. The class is one that the server has no meaning for.
pub(super) mod state {
    pub(crate) const LOCK_ID_IN_USE: &str = "LH001";
    pub(crate) const FENCE_TOO_HIGH: &str = "LH002";
    pub(crate) const BAD_KEY: &str = "LH010";
    pub(crate) const BAD_TTL: &str = "LH011";
    pub(crate) const BAD_LOCK_ID: &str = "LH012";
    pub(crate) const BAD_HOLDER: &str = "LH013";
    pub(crate) const BAD_METADATA: &str = "LH014";
}

/// The driver's errors as ours, in one total table. `sent` tells whether the request had left
/// before the error.
pub(super) fn translate(source: tokio_postgres::Error, sent: bool) -> Error {
    if source.code().is_some_and(|state| state.code() == state::LOCK_ID_IN_USE) {
        return Error::id_in_use();
    }
    let description = match source.code() {
        Some(state) => answer(state.code()),
        None => failure(&source),
    };
    describe(description, without_values(source), sent)
}

/// The name of a server that could not be looked up.
pub(super) fn unresolved(source: std::io::Error) -> Error {
    let unreachable = (ErrorCode::ServiceUnavailable, "the server cannot be reached", Some(REACHABLE), Done::No);
    describe(out_of_resources(&source).unwrap_or(unreachable), source, false)
}

fn without_values(source: tokio_postgres::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match source.as_db_error() {
        Some(said) => Box::new(ServerSaid::new(said)),
        None => source.into(),
    }
}

/// What the server said, without what it repeats of rows and values: other programs' or a lock id.
#[derive(Debug)]
pub(super) struct ServerSaid {
    text: String,
    pub(super) state: SqlState,
    /// It refused the statement, and the session goes on.
    pub(super) refused: bool,
    /// What it was doing was to wait for an advisory lock.
    pub(super) at_advisory_lock: bool,
}

impl ServerSaid {
    fn new(said: &DbError) -> Self {
        let code = said.code().code();
        let text = match &code[..code.len().min(2)] {
            "22" => format!("{} {code}", said.severity()),
            _ => format!("{} {code}: {}", said.severity(), said.message()),
        };
        Self {
            text,
            state: said.code().clone(),
            refused: said.parsed_severity() == Some(Severity::Error),
            at_advisory_lock: said.where_().is_some_and(|place| place.contains("pg_advisory_xact_lock")),
        }
    }

    /// What the server itself said, if it answered at all.
    pub(super) fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

impl std::fmt::Display for ServerSaid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ServerSaid {}

/// Whether the same statement may succeed when it is simply sent again, at once: two transactions
/// were in each other's way.
pub(super) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let conflicts = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];
    error.code().is_some_and(|state| conflicts.contains(state))
}

/// Whether the server takes no writes, as a standby or for this session.
pub(super) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// What the server answered instead of doing what it was asked, by SQLSTATE.
fn answer(state: &str) -> Description {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, RateLimited, ServiceUnavailable};
    let (code, message, hint) = match state {
        state::FENCE_TOO_HIGH => (
            Internal,
            "the fence of this key is beyond the highest one",
            "the server's clock or the key's fence counter is wrong; go on under a new key or new tables",
        ),
        "42P01" | "42883" | "3F000" | "42703" => (
            InvalidArgument,
            "the tables or functions for locks are missing or of another version",
            "run `leasehold migrate --store URL`",
        ),
        "42501" => (
            AuthFailed,
            "the user lacks a permission on the tables or functions for locks",
            "grant what docs/postgres.md lists; `leasehold doctor` names what is missing",
        ),
        READ_ONLY => (
            ServiceUnavailable,
            "the server or the session is read-only",
            "connect to the primary; during a failover try again in a moment",
        ),
        "42P13" | "42723" => (
            InvalidArgument,
            "a function of another program has the name of one of ours",
            "drop that function, or keep the locks in another schema",
        ),
        "3D000" => (InvalidArgument, "the server has no database of this name", "check the URL"),
        "40001" | "40P01" => (ServiceUnavailable, "other transactions were in the way", "try again"),
        "55P03" => {
            (ServiceUnavailable, "another transaction kept the lock's row too long", "look for a long transaction")
        }
        "53300" => (
            RateLimited,
            "the server takes no more connections",
            "raise max_connections; docs/postgres.md has the numbers",
        ),
        "53100" => (ServiceUnavailable, "the server's disk is full", "make room"),
        "53200" => {
            (ServiceUnavailable, "the server is out of memory", "check max_locks_per_transaction and its memory")
        }
        "57P03" => (ServiceUnavailable, "the server is starting or stopping", "try again in a moment"),
        "23505" => (ServiceUnavailable, "another transaction was in the way", "try again"),
        _ => return by_class(state),
    };
    (code, message, Some(hint), Done::No)
}

fn by_class(state: &str) -> Description {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, ServiceUnavailable};
    match &state[..state.len().min(2)] {
        "08" => (ServiceUnavailable, "the connection to the server failed", Some(REACHABLE), Done::Maybe),
        "28" => (AuthFailed, "the server does not accept the user name and password", Some("check both"), Done::No),
        "53" => (ServiceUnavailable, "the server lacks resources", Some("check its log"), Done::No),
        // An administrator, a failover or a timeout of the server's own ended the statement, or the
        // session.
        "57" if state == "57014" => {
            (NetworkTimeout, "the server gave up after its own time limit", Some("check statement_timeout"), Done::No)
        }
        "57" => (ServiceUnavailable, "the server ended the session", Some("try again in a moment"), Done::Maybe),
        "58" => (ServiceUnavailable, "the server's disk fails", Some("check its log"), Done::Maybe),
        "22" | "LH" => (InvalidArgument, "the server does not take a value", None, Done::No),
        _ => (Internal, "an unexpected answer of the server", None, Done::Maybe),
    }
}

const REACHABLE: &str = "check that the server is up and that this host can reach it";

/// What happened to the connection.
fn failure(error: &tokio_postgres::Error) -> Description {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, ServiceUnavailable};
    if is_about_tls(error) {
        return (
            AuthFailed,
            "no trusted TLS connection can be made",
            Some("check that the server speaks TLS, its certificate, and the options sslmode and sslrootcert"),
            Done::No,
        );
    }
    if let Some(description) = io_error(error).and_then(out_of_resources) {
        return description;
    }
    if error.is_closed() {
        return (ServiceUnavailable, "the connection to the server was lost", Some(REACHABLE), Done::Maybe);
    }
    match io_error(error).map(std::io::Error::kind) {
        Some(std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound) => {
            (ServiceUnavailable, "no server answers at this address", Some(REACHABLE), Done::No)
        }
        // None of several servers accepts writes.
        Some(std::io::ErrorKind::PermissionDenied) if said(error).contains("not allow writes") => answer(READ_ONLY),
        Some(std::io::ErrorKind::PermissionDenied) => {
            (AuthFailed, "the server's socket may not be opened", Some("check its owner and permissions"), Done::No)
        }
        Some(std::io::ErrorKind::TimedOut) => {
            (NetworkTimeout, "the server did not answer in time", Some(REACHABLE), Done::Maybe)
        }
        Some(std::io::ErrorKind::InvalidInput) => (
            Internal,
            "the answer is not the PostgreSQL protocol",
            Some("check that it is a PostgreSQL server"),
            Done::Maybe,
        ),
        // A name that nobody knows, for example.
        Some(_) if error.to_string().contains("connecting to server") => {
            (ServiceUnavailable, "the server cannot be reached", Some(REACHABLE), Done::No)
        }
        Some(_) => (ServiceUnavailable, "the connection to the server was lost", Some(REACHABLE), Done::Maybe),
        None => match said(error) {
            text if text.contains("authentication") || text.contains("password") => {
                (AuthFailed, "the server does not accept the user name and password", Some("check both"), Done::No)
            }
            text if text.contains("configuration") || text.contains("invalid connection string") => (
                InvalidArgument,
                "the server's URL cannot be used",
                Some("for example postgres://user@host/database"),
                Done::No,
            ),
            text if text.contains("connecting to server") => {
                (ServiceUnavailable, "the server cannot be reached", Some(REACHABLE), Done::No)
            }
            _ => (Internal, "an unexpected answer of the server", None, Done::Maybe),
        },
    }
}

fn is_about_tls(error: &tokio_postgres::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<rustls::Error>() {
            return true;
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
        {
            return true;
        }
        source = cause.source();
    }
    error.to_string().contains("TLS")
}

/// What the driver says, with its reason.
fn said(error: &tokio_postgres::Error) -> String {
    format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default())
}

fn io_error(error: &tokio_postgres::Error) -> Option<&std::io::Error> {
    error.source()?.downcast_ref::<std::io::Error>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_has_its_meaning() {
        use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, RateLimited, ServiceUnavailable};
        for (state, code, done) in [
            ("08000", ServiceUnavailable, Done::Maybe),
            ("08006", ServiceUnavailable, Done::Maybe),
            ("08P01", ServiceUnavailable, Done::Maybe),
            ("28000", AuthFailed, Done::No),
            ("28P01", AuthFailed, Done::No),
            ("3D000", InvalidArgument, Done::No),
            ("3F000", InvalidArgument, Done::No),
            ("40001", ServiceUnavailable, Done::No),
            ("40P01", ServiceUnavailable, Done::No),
            ("53100", ServiceUnavailable, Done::No),
            ("53200", ServiceUnavailable, Done::No),
            ("53300", RateLimited, Done::No),
            ("53400", ServiceUnavailable, Done::No),
            ("55P03", ServiceUnavailable, Done::No),
            ("57014", NetworkTimeout, Done::No),
            ("57P01", ServiceUnavailable, Done::Maybe),
            ("57P02", ServiceUnavailable, Done::Maybe),
            ("57P03", ServiceUnavailable, Done::No),
            ("58030", ServiceUnavailable, Done::Maybe),
            ("25006", ServiceUnavailable, Done::No),
            ("42P01", InvalidArgument, Done::No),
            ("42883", InvalidArgument, Done::No),
            ("42703", InvalidArgument, Done::No),
            ("42501", AuthFailed, Done::No),
            ("22P05", InvalidArgument, Done::No),
            ("23505", ServiceUnavailable, Done::No),
            ("42P13", InvalidArgument, Done::No),
            ("42723", InvalidArgument, Done::No),
            ("LH002", Internal, Done::No),
            ("LH010", InvalidArgument, Done::No),
            ("LH014", InvalidArgument, Done::No),
            ("XX000", Internal, Done::Maybe),
            ("", Internal, Done::Maybe),
        ] {
            let (found, _, hint, found_done) = answer(state);
            assert_eq!((found, found_done), (code, done), "{state}");
            assert!(hint.is_some() || matches!(code, Internal | InvalidArgument), "{state}");
        }
        assert!(answer("42P01").2.is_some_and(|hint| hint.contains("leasehold migrate")));
    }
}
