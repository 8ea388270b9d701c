use leasehold::{Check, Error, Verdict};

/// The check of that name.
#[track_caller]
pub fn check<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name} in {checks:?}"))
}

/// The names of the checks that are not as they should be.
pub fn complaints(checks: &[Check]) -> Vec<(&'static str, Verdict)> {
    checks.iter().filter(|check| check.verdict != Verdict::Ok).map(|check| (check.name, check.verdict)).collect()
}

/// Everything that a person could get to see of an error.
pub fn everything_said(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {:?}", error.hint());
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}
