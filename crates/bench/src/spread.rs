//! A number that was measured several times.

/// The median of some rounds, and how far they were apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The round in the middle.
    pub median: f64,
    /// The lowest of all rounds.
    pub least: f64,
    /// The highest.
    pub greatest: f64,
}

impl Spread {
    /// Of these rounds; nothing of none.
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut rounds: Vec<_> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        let median = *rounds.get(rounds.len() / 2)?;
        Some(Self { median, least: *rounds.first()?, greatest: *rounds.last()? })
    }

    /// For a table: `1234 (1100 to 1300)`, in a unit that is `size` of ours.
    pub fn text(&self, size: f64) -> String {
        let [median, least, greatest] = [self.median, self.least, self.greatest].map(|number| digits(number / size));
        if least == greatest { median } else { format!("{median} ({least} to {greatest})") }
    }
}

/// A number with three digits that count, or four without a unit: `0.25`, `9999`, `12.3k`, `2.20M`.
pub fn digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.995 => format!("{number:.2}"),
        size if size < 9.95 => format!("{number:.1}"),
        size if size < 1e4 => format!("{number:.0}"),
        size if size < 99_950.0 => format!("{:.1}k", number / 1e3),
        size if size < 1e6 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, greatest: 3.0 });
        assert_eq!(spread.text(1.0), "2.0 (1.0 to 3.0)");
        assert_eq!(Spread::of([7.0]).unwrap().text(1.0), "7.0");
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn numbers_are_as_short_as_their_precision() {
        let texts = [0.0, 0.25, 4.26, 42.0, 9_999.0, 12_345.0, 123_456.0, 2_200_000.0].map(digits);
        assert_eq!(texts, ["0", "0.25", "4.3", "42", "9999", "12.3k", "123k", "2.20M"]);
    }
}
