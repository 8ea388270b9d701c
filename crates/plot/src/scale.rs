use std::time::Duration;

use crate::time::short;

/// A logarithmic axis of times, from left to right.
pub(crate) struct LogScale {
    /// The powers of ten at both ends, in nanoseconds.
    ends: [f64; 2],
    /// Where they are in the figure.
    places: [f64; 2],
}

impl LogScale {
    /// An axis that has room for times from `least` to `greatest`, and some more on both sides.
    pub(crate) fn new([least, greatest]: [Duration; 2], places: [f64; 2]) -> Self {
        let log = |time: Duration| (time.as_secs_f64() * 1e9).max(1.0).log10();
        let margin = ((log(greatest) - log(least)) * 0.04).max(0.05);
        Self { ends: [log(least) - margin, log(greatest) + margin], places }
    }

    pub(crate) fn place(&self, nanos: f64) -> f64 {
        let [from, to] = self.ends;
        let [left, right] = self.places;
        left + (nanos.max(1e-3).log10() - from) / (to - from) * (right - left)
    }

    /// How many doublings there are between the ends.
    pub(crate) fn octaves(&self) -> f64 {
        (self.ends[1] - self.ends[0]) / 2f64.log10()
    }

    /// Round times and their labels: powers of ten, and what is between them if they are few.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let [from, to] = self.ends;
        let between: &[f64] = match to - from {
            decades if decades > 3.0 => &[1.0],
            decades if decades > 0.8 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        };
        #[allow(clippy::cast_possible_truncation)]
        let powers = from.floor() as i32..=to.ceil() as i32;
        let values = powers.flat_map(|power| between.iter().map(move |step| step * 10f64.powi(power)));
        values
            .filter(|nanos| (from..=to).contains(&nanos.log10()))
            .map(|nanos| (self.place(nanos), label(nanos)))
            .collect()
    }
}

/// A round time without the digits that are zero.
fn label(nanos: f64) -> String {
    let text = short(Duration::from_secs_f64(nanos / 1e9));
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_times_within_its_ends_however_wide_it_is() {
        let of = |least, greatest| {
            let scale = LogScale::new([Duration::from_nanos(least), Duration::from_nanos(greatest)], [0.0, 100.0]);
            let ticks = scale.ticks();
            assert!(ticks.iter().all(|(place, _)| (0.0..=100.0).contains(place)), "{ticks:?}");
            ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(of(800, 20_000_000), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        assert_eq!(of(90_000, 1_100_000), ["100 µs", "200 µs", "500 µs", "1 ms"]);
        assert_eq!(of(1_400_000, 2_100_000), ["1.5 ms", "2 ms"]);
        assert!(!of(1_000_000, 1_000_000).is_empty());
    }
}
