//! What is asserted again and again.

use leasehold::{Error, ErrorCode};
use leasehold_conformance::history::{Event, Summary, check};

/// An error that says what to do, when to try again, and what it does not know.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, message: &str, outcome_unknown: bool) {
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
    assert!(error.to_string().contains(message), "{error:?}");
    assert!(error.is_retryable() && error.hint().is_some() && error.operation().is_some(), "{error:?}");
    assert_eq!(error.outcome_unknown(), outcome_unknown, "{error:?}");
}

/// Fails with all the promises that the events show to be broken.
#[track_caller]
pub(crate) fn assert_sound(events: &[Event]) -> Summary {
    check(events).unwrap_or_else(|broken| {
        let shown: Vec<String> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
        panic!("{} violations:\n{}", broken.len(), shown.join("\n"))
    })
}
