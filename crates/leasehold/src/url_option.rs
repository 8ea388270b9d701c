//! The values of options in URLs, for stores that have URLs with options.

use std::ops::RangeInclusive;
use std::time::Duration;

use percent_encoding::percent_decode_str;

/// The text that a percent-encoded one stands for; none if it is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// A number of seconds, with or without a fraction; none if it is not one of `allowed`.
pub(crate) fn seconds(text: &str, allowed: &RangeInclusive<Duration>) -> Option<Duration> {
    let seconds = text.trim_end_matches('s').parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| allowed.contains(time))
}
