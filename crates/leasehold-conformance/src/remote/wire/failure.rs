use leasehold::{Error, ErrorCode, Operation};
use serde::{Deserialize, Serialize};

/// What arrives of an [`Error`].
#[derive(Serialize, Deserialize)]
pub(in super::super) struct Failure {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
    operation: Option<Operation>,
    outcome_unknown: bool,
    source: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let text = error.to_string();
        // The text begins with the operation, which is sent by itself.
        let prefix = error.operation().map(|operation| format!("{}: ", operation.as_str())).unwrap_or_default();
        Self {
            code: error.code(),
            message: text.strip_prefix(&prefix).unwrap_or(&text).to_owned(),
            hint: error.hint().map(str::to_owned),
            operation: error.operation(),
            outcome_unknown: error.outcome_unknown(),
            source: std::error::Error::source(error).map(ToString::to_string),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let mut error = Error::new(failure.code, failure.message);
        if let Some(hint) = failure.hint {
            error = error.with_hint(hint);
        }
        if let Some(operation) = failure.operation {
            error = error.during(operation);
        }
        if let Some(source) = failure.source {
            error = error.with_source(source);
        }
        if failure.outcome_unknown { error.with_outcome_unknown() } else { error }
    }
}
