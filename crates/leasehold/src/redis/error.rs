use std::sync::Arc;

use redis::{ErrorKind, RedisError, Value};

use super::record::not_a_lock;
use crate::remote::driver_error::{Description, Done, describe, out_of_resources};
use crate::{Error, ErrorCode};

/// The driver's errors as ours, in one total table. `sent` tells whether the request had left
/// before the error.
pub(super) fn translate(source: RedisError, sent: bool) -> Error {
    let code = code_of(&source);
    match code {
        Some("IDINUSE") => return Error::id_in_use(),
        Some("BADRECORD" | "WRONGTYPE") => return not_a_lock().with_source(source),
        _ => {}
    }
    describe(code.and_then(answer).unwrap_or_else(|| failure(&source)), source, sent)
}

/// What the server answered instead of doing what it was asked.
fn answer(code: &str) -> Option<Description> {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, ServiceUnavailable};
    let (code, message, hint) = match code {
        "LOADING" => (ServiceUnavailable, "the server is loading its data", "try again in a moment"),
        "READONLY" => (
            ServiceUnavailable,
            "the server is a read-only replica",
            "connect to the primary, or through Sentinel; during a failover try again in a moment",
        ),
        "MASTERDOWN" => (ServiceUnavailable, "the server is a replica that has lost its primary", "check the primary"),
        "BUSY" => (
            ServiceUnavailable,
            "the server is busy with a long script",
            "look for the program that runs it; SCRIPT KILL ends it",
        ),
        "OOM" => (
            ServiceUnavailable,
            "the server is out of memory",
            "raise maxmemory or remove data; locks can still be released",
        ),
        "MISCONF" => (ServiceUnavailable, "the server cannot save its data", "check its disk and its log"),
        "NOREPLICAS" => (ServiceUnavailable, "the server has fewer replicas than it needs for a write", "check them"),
        "NOSCRIPT" => (ServiceUnavailable, "the server forgot the script it was just sent", "try again"),
        "CLUSTERDOWN" => (ServiceUnavailable, "the cluster is down", "check its nodes"),
        "MOVED" | "ASK" | "TRYAGAIN" => {
            (ServiceUnavailable, "the cluster is moving the locks to another node", "try again in a moment")
        }
        "CROSSSLOT" => (
            InvalidArgument,
            "on a cluster all locks must be on one node",
            "give the prefix a hash tag, for example ?prefix={locks}",
        ),
        "NOAUTH" => (AuthFailed, "the server wants a password", "put it into the URL: redis://user:password@host"),
        "WRONGPASS" => (AuthFailed, "the server does not accept the user name and password", "check both"),
        "NOPERM" => (
            AuthFailed,
            "the user lacks a permission in the server",
            "`leasehold doctor` names the ones that are missing",
        ),
        "DENIED" => (AuthFailed, "the server is in protected mode", "set a password, or let it listen to this host"),
        "NOPROTO" => (InvalidArgument, TOO_OLD.0, TOO_OLD.1),
        "FENCEEXHAUSTED" => (
            Internal,
            "the fence of this key is beyond the highest one",
            "the server's clock or the key's fence counter is wrong; go on under a new key or a new prefix",
        ),
        "BADCOUNTER" => (
            Internal,
            "the fence counter of this key is not a number",
            "something else wrote to it; set it to a number higher than any fence that was granted",
        ),
        _ => return None,
    };
    Some((code, message, Some(hint), Done::No))
}

const TOO_OLD: (&str, &str) = ("the server is too old", "Redis 6 or newer, or Valkey, is needed");

/// Everything else: what happened to the connection, and answers without a code of their own.
fn failure(error: &RedisError) -> Description {
    use ErrorCode::{AuthFailed, Internal, InvalidArgument, NetworkTimeout, RateLimited, ServiceUnavailable};
    let detail = error.detail().unwrap_or_default();
    if let Some(description) = io_error(error).and_then(out_of_resources) {
        return description;
    }
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => {
            (NetworkTimeout, "the server did not answer in time", Some(REACHABLE), Done::Maybe)
        }
        ErrorKind::Io if error.is_connection_refusal() => {
            (ServiceUnavailable, "no server answers at this address", Some(REACHABLE), Done::No)
        }
        ErrorKind::Io => match io_error(error).map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => {
                (AuthFailed, "the server's socket may not be opened", Some("check its owner and permissions"), Done::No)
            }
            Some(std::io::ErrorKind::InvalidData) => (AuthFailed, NO_TLS.0, Some(NO_TLS.1), Done::No),
            Some(kind) if lost(kind) => {
                (ServiceUnavailable, "the connection to the server was lost", Some(REACHABLE), Done::Maybe)
            }
            // Without an inner error it is the driver that says so.
            None => (ServiceUnavailable, "the connection to the server was lost", Some(REACHABLE), Done::Maybe),
            Some(_) => (ServiceUnavailable, "the server cannot be reached", Some(REACHABLE), Done::Maybe),
        },
        ErrorKind::AuthenticationFailed => {
            (AuthFailed, "the server does not accept the user name and password", Some("check both"), Done::No)
        }
        ErrorKind::Client => (AuthFailed, NO_TLS.0, Some(NO_TLS.1), Done::No),
        ErrorKind::RESP3NotSupported => (InvalidArgument, TOO_OLD.0, Some(TOO_OLD.1), Done::No),
        ErrorKind::InvalidClientConfig => {
            (InvalidArgument, "the server's URL cannot be used", Some("for example redis://127.0.0.1:6379/0"), Done::No)
        }
        ErrorKind::Server(_) if is_full(error) => {
            (RateLimited, "the server takes no more connections", Some("raise its maxclients"), Done::No)
        }
        ErrorKind::Server(_) if detail.contains("DB index") || detail.contains("invalid DB") => {
            (InvalidArgument, "the server has no database of this number", Some("check the end of the URL"), Done::No)
        }
        ErrorKind::Server(_) if detail.contains("the 'select' command") => (
            AuthFailed,
            "the user may not choose a database in the server",
            Some("grant +select, or use database 0"),
            Done::No,
        ),
        ErrorKind::Server(_) if detail.contains("without any password") => {
            (AuthFailed, "the server has no password, but one was given", Some("check the URL"), Done::No)
        }
        ErrorKind::Parse => (
            Internal,
            "the answer is not the Redis protocol",
            Some("check that it is a Redis server, and whether it speaks TLS: rediss://"),
            Done::Maybe,
        ),
        // Answers that should not be, and what later versions of the driver may come up with.
        _ => (Internal, "an unexpected answer of the server", None, Done::Maybe),
    }
}

/// A server that wants TLS hangs up on those who do not speak it, and one that does not waits for
/// more.
const REACHABLE: &str =
    "check that the server is up, that this host can reach it, and whether it wants TLS (rediss://) or not (redis://)";

const NO_TLS: (&str, &str) = (
    "no trusted TLS connection can be made",
    "check that the server speaks TLS, that its certificate is valid for this host name, and the ca, cert and key options",
);

/// The code of an answer of the server. Before version 7, errors inside a script come wrapped in
/// another one; from then on some have no code of their own.
fn code_of(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    if code != "ERR" {
        return Some(code);
    }
    let detail = error.detail().unwrap_or_default();
    if detail.contains("user executing the script") || detail.contains("ACL failure in script") {
        return Some("NOPERM");
    }
    // Half of a lock is on another node. Scripts look at all of it before they write.
    if ["non local key in a cluster node", "during rehashing of the slot"].iter().any(|said| detail.contains(said)) {
        return Some("TRYAGAIN");
    }
    if !detail.contains("Error running script") {
        return Some(code);
    }
    let words = detail.split(|c: char| !c.is_ascii_uppercase());
    words.filter(|word| word.len() > 2).find(|word| *word == "WRONGTYPE" || answer(word).is_some()).or(Some(code))
}

fn io_error(error: &RedisError) -> Option<&std::io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let source = std::error::Error::source(error)?.downcast_ref::<Shared>()?;
    source.downcast_ref::<std::io::Error>()
}

fn lost(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind as Io;
    matches!(kind, Io::BrokenPipe | Io::ConnectionReset | Io::ConnectionAborted | Io::UnexpectedEof | Io::NotConnected)
}

/// Whether the server is a replica or has left its cluster, so that another one should be looked
/// for.
pub(super) fn wrong_server(error: &RedisError) -> bool {
    matches!(code_of(error), Some("READONLY" | "MASTERDOWN" | "CLUSTERDOWN"))
}

/// Whether the server does not want the connection at all.
pub(super) fn unwanted(error: &RedisError) -> bool {
    code_of(error) == Some("DENIED") || is_full(error)
}

/// Whether the server has no room for another connection.
fn is_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

/// Whether the server has lost its replicas: perhaps to another primary.
pub(super) fn without_replicas(error: &RedisError) -> bool {
    code_of(error) == Some("NOREPLICAS")
}

/// The error that a script tells of in this text.
pub(super) fn server_error(text: &[u8]) -> RedisError {
    let text = String::from_utf8_lossy(text);
    let line = text.trim_start_matches('-').lines().next().unwrap_or_default();
    let parsed = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(Value::extract_error);
    parsed.err().unwrap_or_else(|| (ErrorKind::UnexpectedReturnType, "not an error").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn server(line: &str) -> RedisError {
        server_error(line.as_bytes())
    }

    #[test]
    fn every_answer_has_its_meaning() {
        use ErrorCode::{AuthFailed, Internal, InvalidArgument, RateLimited, ServiceUnavailable};
        for (line, code) in [
            ("LOADING Redis is loading the dataset in memory", ServiceUnavailable),
            ("READONLY You can't write against a read only replica.", ServiceUnavailable),
            ("MASTERDOWN Link with MASTER is down", ServiceUnavailable),
            ("BUSY Redis is busy running a script", ServiceUnavailable),
            ("OOM command not allowed when used memory > 'maxmemory'.", ServiceUnavailable),
            ("MISCONF Errors writing to the AOF file", ServiceUnavailable),
            ("NOREPLICAS Not enough good replicas to write.", ServiceUnavailable),
            ("NOSCRIPT No matching script.", ServiceUnavailable),
            ("CLUSTERDOWN The cluster is down", ServiceUnavailable),
            ("MOVED 1 127.0.0.1:1", ServiceUnavailable),
            ("ASK 1 127.0.0.1:1", ServiceUnavailable),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ServiceUnavailable),
            ("CROSSSLOT Keys in request don't hash to the same slot", InvalidArgument),
            ("NOAUTH Authentication required.", AuthFailed),
            ("WRONGPASS invalid username-password pair", AuthFailed),
            ("NOPERM this user has no permissions to run the 'set' command", AuthFailed),
            ("DENIED Redis is running in protected mode", AuthFailed),
            ("NOPROTO unsupported protocol version", InvalidArgument),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Internal),
            ("BADRECORD secret", Internal),
            ("BADCOUNTER secret", Internal),
            ("FENCEEXHAUSTED secret", Internal),
            ("IDINUSE secret", InvalidArgument),
            ("ERR max number of clients reached", RateLimited),
            ("ERR max number of clients + cluster connections reached", RateLimited),
            ("ERR DB index is out of range", InvalidArgument),
            ("ERR AUTH <password> called without any password configured", AuthFailed),
            (
                "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM command",
                ServiceUnavailable,
            ),
            ("ERR Error running script (call to f_1): @user_script:9: READONLY You can't", ServiceUnavailable),
            ("ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Operation", Internal),
            ("ERR The user executing the script can't run this command or subcommand script: 1", AuthFailed),
            ("ERR ACL failure in script: User app has no permissions to run the 'set' command", AuthFailed),
            ("ERR Script attempted to access a non local key in a cluster node script: 1", ServiceUnavailable),
            (
                "ERR Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing \
                 of the slot script: 1",
                ServiceUnavailable,
            ),
        ] {
            let error = translate(server(line), true);
            assert_eq!(error.code(), code, "{line}");
            assert!(!error.outcome_unknown(), "{line}");
            assert!(error.hint().is_some() || error.code() == InvalidArgument, "{line}");
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("127.0.0.1"), "{line}");
        }
    }

    #[test]
    fn what_may_have_happened_is_said_to_be_unknown() {
        use ErrorCode::{AuthFailed, Internal, NetworkTimeout, ServiceUnavailable};
        for (error, code, unknown) in [
            (server("ERR something new"), Internal, true),
            (server("ERR Error running script (call to f_1): something new"), Internal, true),
            (io::Error::from(io::ErrorKind::TimedOut).into(), NetworkTimeout, true),
            (io::Error::from(io::ErrorKind::ConnectionRefused).into(), ServiceUnavailable, false),
            (io::Error::from(io::ErrorKind::NotFound).into(), ServiceUnavailable, false),
            (io::Error::from(io::ErrorKind::ConnectionReset).into(), ServiceUnavailable, true),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), ServiceUnavailable, true),
            (io::Error::from(io::ErrorKind::UnexpectedEof).into(), ServiceUnavailable, true),
            (io::Error::from(io::ErrorKind::HostUnreachable).into(), ServiceUnavailable, true),
            (io::Error::from(io::ErrorKind::PermissionDenied).into(), AuthFailed, false),
            (io::Error::from(io::ErrorKind::InvalidData).into(), AuthFailed, false),
            (io::Error::from_raw_os_error(24).into(), ServiceUnavailable, false),
            (redis::parse_redis_value(b"HTTP/1.1 400 Bad Request\r\n").unwrap_err(), Internal, true),
            (RedisError::from((ErrorKind::UnexpectedReturnType, "x")), Internal, true),
            (RedisError::from((ErrorKind::AuthenticationFailed, "x")), AuthFailed, false),
            (RedisError::from((ErrorKind::InvalidClientConfig, "x")), ErrorCode::InvalidArgument, false),
            (RedisError::from((ErrorKind::RESP3NotSupported, "x")), ErrorCode::InvalidArgument, false),
        ] {
            let text = error.to_string();
            let sent = translate(error.clone(), true);
            assert_eq!((sent.code(), sent.outcome_unknown()), (code, unknown), "{text}");
            assert!(!translate(error, false).outcome_unknown(), "{text}: nothing was sent");
        }
    }
}
