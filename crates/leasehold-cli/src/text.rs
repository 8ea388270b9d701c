//! Text for people: durations, moments, places, names and widths.

use std::time::Duration;

use leasehold::{Contention, Holder, Key, Timestamp};
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

/// Who is in the way of a request, for how long by now.
pub(crate) fn obstacle(contention: &Contention, time: Duration) -> String {
    let (name, since, time) = (holder(contention.holder.as_ref()), moment(contention.acquired_at), duration(time));
    match contention.holders {
        0 => format!("free, but kept for {name}, who waits since {since} ({time})"),
        1 => format!("held by {name} since {since} ({time})"),
        several => format!("held by {name} and {} more since {since} ({time})", several - 1),
    }
}

/// A place in line, by how many are before it: `next in line`, `second in line`, `14th in line`.
pub(crate) fn place(before: u32) -> String {
    const WORDS: [&str; 10] =
        ["next", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
    let word = usize::try_from(before).ok().and_then(|before| WORDS.get(before));
    word.map_or_else(|| format!("{} in line", ordinal(u64::from(before) + 1)), |word| format!("{word} in line"))
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Keys in quotation marks: `'a', 'b' and 'c'`.
pub(crate) fn quoted(keys: &[Key]) -> String {
    list(keys.iter().map(|key| format!("'{}'", key.as_str())))
}

/// `a, b and c`.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    let mut items: Vec<_> = items.into_iter().collect();
    match (items.pop(), items.is_empty()) {
        (Some(last), false) => format!("{} and {last}", items.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
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
    fn places_are_words_up_to_the_tenth() {
        let places: Vec<_> = [0, 1, 2, 9, 10, 12, 20, 21, 22, 111, 120].map(place).into();
        let words = ["next", "second", "third", "tenth", "11th", "13th", "21st", "22nd", "23rd", "112th", "121st"];
        assert_eq!(places, words.map(|word| format!("{word} in line")));
        assert!(place(u32::MAX).starts_with("4294967296th"));
    }

    #[test]
    fn names_are_listed_as_people_do() {
        let of = |names: &[&str]| list(names.iter().map(|name| (*name).to_owned()));
        assert_eq!([of(&[]), of(&["a"]), of(&["a", "b"]), of(&["a", "b", "c"])], ["", "a", "a and b", "a, b and c"]);
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
