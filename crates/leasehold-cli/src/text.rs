//! Text for people: durations, moments and widths.

use std::time::Duration;

use leasehold::{Holder, Timestamp};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A duration with its two largest units: `3m 2s`, `1h 4m`. Below a second `740ms`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds == 0 {
        return match time.subsec_millis() {
            0 => "0s".to_owned(),
            millis => format!("{millis}ms"),
        };
    }
    let units = [("d", 86_400, u64::MAX), ("h", 3_600, 24), ("m", 60, 60), ("s", 1, 60)];
    let parts = units.map(|(unit, size, limit)| (seconds / size % limit, unit));
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown = parts[first..].iter().take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}

/// A time in UTC. Whatever a stranger wrote into the store, it is shown: years have four digits,
/// and the rest is cut off.
pub(crate) fn moment(time: Timestamp) -> String {
    let last = Timestamp::from_millis(253_402_300_799_000);
    humantime::format_rfc3339_seconds(time.min(last).to_system_time()).to_string()
}

/// Who holds a lock.
pub(crate) fn holder(holder: Option<&Holder>) -> &str {
    holder.map_or("somebody who left no name", Holder::as_str)
}

/// `text` on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The columns that `text` takes on a terminal: those of its characters as people see them. The
/// width of a whole text is something else, because some of them are drawn in one.
pub(crate) fn width(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// `text`, cut to `columns` with `…` at the end if it is wider. No character is cut in two.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let fits = |character: &&str| {
        used += character.width();
        used <= room
    };
    text.graphemes(true).take_while(fits).chain(["…"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_can_be_shown() {
        assert_eq!(moment(Timestamp::from_millis(0)), "1970-01-01T00:00:00Z");
        assert_eq!(moment(Timestamp::from_millis(u64::MAX)), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (0, "0s"),
            (740, "740ms"),
            (1_900, "1s"),
            (62_000, "1m 2s"),
            (120_000, "2m"),
            (3_600_000, "1h"),
            (3_725_000, "1h 2m"),
            (90_000_000, "1d 1h"),
            (86_400_000 * 400, "400d"),
        ];
        for (millis, text) in cases {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn cutting_counts_columns_not_bytes() {
        assert_eq!(cut("nightly", 7), "nightly");
        assert_eq!(cut("nightly", 4), "nig…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(width(&cut("日本語日本語", 4)), 3);
        assert_eq!((cut("nightly", 1), cut("nightly", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn what_people_see_as_one_character_is_not_cut() {
        let (heart, family, accent) = ("❤\u{fe0f}", "👩🏽\u{200d}🚒", "e\u{301}");
        assert_eq!(cut(&heart.repeat(60), 7), heart.repeat(3) + "…");
        assert_eq!(cut(&family.repeat(3), 5), family.repeat(2) + "…");
        assert_eq!(cut(&accent.repeat(9), 4), accent.repeat(3) + "…");
    }
}
