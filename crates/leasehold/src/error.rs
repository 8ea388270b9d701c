use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Contention, Loss};

/// What went wrong, for programs. The meaning is the same on every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The store cannot be reached or refuses service for now: network failure, restart, failover,
    /// conflict.
    ServiceUnavailable,
    /// The store does not accept who we are or does not allow what we ask.
    AuthFailed,
    /// The request is wrong and will stay wrong: key, ttl, lock id, URL, configuration.
    InvalidArgument,
    /// The store asks to slow down.
    RateLimited,
    /// The store did not answer in time.
    NetworkTimeout,
    /// The lock stayed with somebody else for as long as the caller was willing to wait.
    AcquisitionTimeout,
    /// The caller cancelled.
    Aborted,
    /// The lock was ours and is no longer.
    LockLost,
    /// Something that should not happen: an unknown answer, a fence that goes backwards, a bug.
    Internal,
}

/// The operations of a store, as they appear in errors, telemetry and fault scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// [`Backend::acquire`](crate::backend::Backend::acquire)
    Acquire,
    /// [`Backend::release`](crate::backend::Backend::release)
    Release,
    /// [`Backend::extend`](crate::backend::Backend::extend)
    Extend,
    /// [`Backend::is_locked`](crate::backend::Backend::is_locked)
    IsLocked,
    /// [`Backend::lookup`](crate::backend::Backend::lookup)
    Lookup,
    /// [`Backend::list`](crate::backend::Backend::list)
    List,
    /// [`Backend::subscribe`](crate::backend::Backend::subscribe)
    Subscribe,
    /// [`Backend::force_release`](crate::backend::Backend::force_release)
    ForceRelease,
}

impl Operation {
    /// The operation's name, as in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Acquire => "acquire",
            Operation::Release => "release",
            Operation::Extend => "extend",
            Operation::IsLocked => "is_locked",
            Operation::Lookup => "lookup",
            Operation::List => "list",
            Operation::Subscribe => "subscribe",
            Operation::ForceRelease => "force_release",
        }
    }
}

/// The one error of this library.
///
/// Its text is for a person and never contains a key, a lock id, a credential or the text of the
/// source error; a program decides by [`code`](Error::code). That a lock is held by somebody else
/// is not an error until you gave up waiting for it.
///
/// ```
/// use leasehold::{ErrorCode, Key};
///
/// let error = Key::new("").unwrap_err();
/// assert_eq!(error.code(), ErrorCode::InvalidArgument);
/// assert!(!error.is_retryable());
/// assert_eq!(error.to_string(), "the key is empty");
/// ```
#[derive(Clone)]
pub struct Error(Box<Details>);

#[derive(Clone)]
struct Details {
    code: ErrorCode,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    operation: Option<Operation>,
    outcome_unknown: bool,
    contention: Option<Contention>,
    loss: Option<Loss>,
    about_key: bool,
    /// Shared, so that an error can be told to all who wait for the same thing.
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with a message for a person. The message must not contain keys, lock ids or
    /// credentials.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Details {
            code,
            message: message.into(),
            hint: None,
            operation: None,
            outcome_unknown: false,
            contention: None,
            loss: None,
            about_key: false,
            source: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn id_in_use() -> Self {
        Self::invalid("the lock id already belongs to the lock of another key").during(Operation::Acquire)
    }

    pub(crate) fn aborted() -> Self {
        Self::new(ErrorCode::Aborted, "the operation was cancelled")
    }

    pub(crate) fn panicked(operation: Operation) -> Self {
        Self::new(ErrorCode::Internal, "the store's driver panicked").during(operation).with_outcome_unknown()
    }

    pub(crate) fn lost(loss: Loss) -> Self {
        let mut error = Self::new(ErrorCode::LockLost, format!("the lock was lost: {loss}"));
        error.0.loss = Some(loss);
        error
    }

    pub(crate) fn slower_than_its_lock() -> Self {
        Self::new(ErrorCode::NetworkTimeout, "the store answers more slowly than the lock lasts")
            .with_hint("use a longer ttl")
    }

    pub(crate) fn acquisition_timeout(waited: Duration, contention: Option<Contention>) -> Self {
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        let mut message = format!("gave up after waiting {waited:?}");
        if let Some(contention) = &contention {
            message.push_str(&format!(": {contention}"));
        }
        let mut error = Self::new(ErrorCode::AcquisitionTimeout, message)
            .with_hint("wait longer, or look up what the holder is doing");
        error.0.contention = contention;
        error
    }

    pub(crate) fn timed_out(operation: Operation, after: Duration) -> Self {
        Self::unanswered(operation, after).with_outcome_unknown()
    }

    /// No answer to a request that changes nothing.
    pub(crate) fn unanswered(operation: Operation, after: Duration) -> Self {
        Self::new(ErrorCode::NetworkTimeout, format!("the store did not answer within {after:?}"))
            .with_hint("check that the store is up and reachable")
            .during(operation)
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the error of the driver or system below.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Notes that the write may have happened although no answer arrived.
    #[must_use]
    pub fn with_outcome_unknown(mut self) -> Self {
        self.0.outcome_unknown = true;
        self
    }

    /// Notes that the key is to blame, which this store cannot take.
    #[must_use]
    pub fn about_key(mut self) -> Self {
        self.0.about_key = true;
        self
    }

    /// Notes in which operation it happened.
    #[must_use]
    pub fn during(mut self, operation: Operation) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// What went wrong, for programs.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What the reader can do about it, if there is more to say than the message does.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The store operation that failed, if it was one.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// Whether the key is to blame, and not the store or its configuration.
    pub fn is_about_key(&self) -> bool {
        self.0.about_key
    }

    /// Whether the same call may succeed when it is simply made again: the trouble is the store's,
    /// not the request's.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.code, ErrorCode::ServiceUnavailable | ErrorCode::RateLimited | ErrorCode::NetworkTimeout)
    }

    /// Whether the write may have landed although the call failed. Every operation may be repeated
    /// with the same lock id, so repeating is how to find out.
    pub fn outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// Who held the lock when waiting for it ended, for
    /// [`AcquisitionTimeout`](ErrorCode::AcquisitionTimeout).
    pub fn contention(&self) -> Option<&Contention> {
        self.0.contention.as_ref()
    }

    /// How the lock was lost, for [`LockLost`](ErrorCode::LockLost).
    pub fn loss(&self) -> Option<Loss> {
        self.0.loss
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.0.operation {
            write!(f, "{}: ", operation.as_str())?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("code", &self.0.code).field("message", &self.0.message);
        if let Some(hint) = &self.0.hint {
            debug.field("hint", hint);
        }
        if let Some(operation) = &self.0.operation {
            debug.field("operation", operation);
        }
        if self.0.outcome_unknown {
            debug.field("outcome_unknown", &true);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
