use std::time::Duration;

use crate::Error;

/// The units, from the largest, with their length in nanoseconds.
const UNITS: [(&str, u128); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// The longest: added to any moment it is still a moment.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A duration as people write it: `500ms`, `30s`, `1.5h`, `1h 30m`. At most a hundred years.
///
/// The units are `ms`, `s`, `m` (minutes), `h` and `d`. What a reader could take for something else
/// is refused: a number without a unit, `M`, months and years, units in any other order than from
/// large to small.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold::parse_duration("1h 30m")?, Duration::from_secs(5400));
/// assert_eq!(leasehold::parse_duration("30").unwrap_err().hint(), Some("30s? 30m?"));
/// assert!(leasehold::parse_duration("5M").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument), with a hint.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let mut rest = text.trim_start();
    let mut units = UNITS.iter();
    let mut nanos: u128 = 0;
    if rest.is_empty() {
        return Err(unreadable("there is no time"));
    }
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.' && !c.is_whitespace());
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
            return Err(unreadable("the time is not a number with a unit"));
        }
        if unit.is_empty() {
            return Err(Error::invalid("the time has no unit").with_hint(format!("{number}s? {number}m?")));
        }
        let Some((_, length)) = units.find(|(name, _)| *name == unit) else { return Err(wrong_unit(number, unit)) };
        nanos = part(whole, fraction, *length).and_then(|part| nanos.checked_add(part)).ok_or_else(too_long)?;
        rest = after.trim_start();
    }
    let time = u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| too_long())?;
    if time > LONGEST { Err(too_long()) } else { Ok(time) }
}

/// What `text` begins with, and the rest.
fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// So many nanoseconds; none if that is no number of ours.
fn part(whole: &str, fraction: &str, unit: u128) -> Option<u128> {
    // Further digits are less than a nanosecond.
    let fraction = &fraction[..fraction.len().min(18)];
    let of_unit = fraction.parse::<u128>().ok()? * unit / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(of_unit)
}

fn unreadable(why: &'static str) -> Error {
    Error::invalid(why).with_hint("for example 500ms, 30s or 1h 30m")
}

fn wrong_unit(number: &str, unit: &str) -> Error {
    let known = UNITS.iter().any(|(name, _)| *name == unit);
    let error = Error::invalid(if known {
        "the units of the time are not from large to small"
    } else {
        "the time has a unit that is none of d, h, m, s, ms"
    });
    match unit {
        "M" => error.with_hint(format!("{number}m is minutes, {number}d is days")),
        _ if unit.starts_with("mo") || unit.starts_with('y') || unit.starts_with('w') => {
            error.with_hint("write it in days: 7d")
        }
        _ => error.with_hint("for example 500ms, 30s or 1h 30m"),
    }
}

fn too_long() -> Error {
    Error::invalid("the time is longer than a hundred years")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_added_up() {
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("1.5s", 1500),
            ("5m", 300_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            (" 2d ", 172_800_000),
            ("0.25h", 900_000),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        assert_eq!(parse_duration("0.123456789s").unwrap(), Duration::from_nanos(123_456_789));
    }

    #[test]
    fn what_could_mean_something_else_is_refused_with_a_hint() {
        for (text, hint) in [
            ("5", "5s? 5m?"),
            ("1.5", "1.5s? 1.5m?"),
            ("1h 30", "30s? 30m?"),
            ("5M", "5m is minutes, 5d is days"),
            ("5month", "write it in days: 7d"),
            ("1y", "write it in days: 7d"),
            ("1w", "write it in days: 7d"),
            ("5S", "for example 500ms, 30s or 1h 30m"),
            ("5 s", "5s? 5m?"),
            ("30m 1h", "for example 500ms, 30s or 1h 30m"),
            ("1s 1s", "for example 500ms, 30s or 1h 30m"),
            ("10us", "for example 500ms, 30s or 1h 30m"),
            ("", "for example 500ms, 30s or 1h 30m"),
            ("-1s", "for example 500ms, 30s or 1h 30m"),
            ("1..5s", "for example 500ms, 30s or 1h 30m"),
            (".5s", "for example 500ms, 30s or 1h 30m"),
            ("5.s", "for example 500ms, 30s or 1h 30m"),
            ("soon", "for example 500ms, 30s or 1h 30m"),
            ("1e3s", "for example 500ms, 30s or 1h 30m"),
            ("٣s", "for example 500ms, 30s or 1h 30m"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error.hint(), Some(hint), "{text}: {error}");
        }
        for long in ["36501d", "18446744073709551615s", "999999999999999999999999999999999999999999d"] {
            assert!(parse_duration(long).unwrap_err().to_string().contains("a hundred years"), "{long}");
        }
    }
}
