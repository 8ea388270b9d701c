use serde::Serialize;

use crate::{Error, ErrorCode};

/// One thing that was looked at when a store was [examined](crate::Locks::examine), and what was
/// found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: &'static str,
    /// How it looks.
    pub verdict: Verdict,
    /// What was found, for a person.
    pub detail: String,
    /// What to do about it, if there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The code of the error, if an operation failed that should work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCode>,
}

/// How a checked thing looks, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Locks work, but something may go wrong one day.
    Warn,
    /// Locks do not work, or are not safe.
    Fail,
}

impl Check {
    /// A check with its outcome.
    pub fn new(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name, verdict, detail: detail.into(), hint: None, error: None }
    }

    /// A check that fails because of `error`.
    pub fn failed(name: &'static str, error: &Error) -> Self {
        let hint = error.hint().map(str::to_owned);
        Self { hint, error: Some(error.code()), ..Self::new(name, Verdict::Fail, error.to_string()) }
    }
}
