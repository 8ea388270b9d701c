use std::time::Duration;

/// Buckets for each doubling of the time: a value is known to within 1.6 percent.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 6;
const BUCKETS: usize = (u64::BITS - STEP_BITS + 1) as usize * (1 << STEP_BITS);

/// How often each latency was seen. Its size does not depend on how many there were, and the
/// greatest is known exactly.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    least: u64,
    greatest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, least: u64::MAX, greatest: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.least = self.least.min(nanos);
        self.greatest = self.greatest.max(nanos);
    }

    /// Counts all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.count += other.count;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least latency.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.least))
    }

    /// The greatest latency.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.greatest))
    }

    /// The latency that so many percent of all did not exceed.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let found = if self.count == 0 { None } else { found };
        let (from, to) = bounds(found?);
        Some(Duration::from_nanos((from + (to - from) / 2).clamp(self.least, self.greatest)))
    }

    /// The latencies that were seen, about: the middle of each bucket in nanoseconds, and how many
    /// are in it.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (u64, u64)> {
        let seen = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        seen.map(|(bucket, count)| {
            let (from, to) = bounds(bucket);
            (from + (to - from) / 2, *count)
        })
    }
}

fn bucket(nanos: u64) -> usize {
    let shift = nanos.max(1).ilog2().saturating_sub(STEP_BITS);
    let bucket = match nanos {
        small if small < STEPS => small,
        large => u64::from(shift + 1) * STEPS + (large >> shift) - STEPS,
    };
    usize::try_from(bucket).unwrap_or(BUCKETS - 1)
}

/// The least value of a bucket, and the greatest.
fn bounds(bucket: usize) -> (u64, u64) {
    let (octave, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match octave {
        0 => (step, step),
        octave => {
            let from = (STEPS + step) << (octave - 1);
            (from, from + ((1 << (octave - 1)) - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_has_it_within_its_bounds() {
        let around = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for nanos in around.chain([u64::MAX, 12_345_678_901]) {
            let (from, to) = bounds(bucket(nanos));
            assert!(from <= nanos && nanos <= to, "{nanos} is not in {from}..={to}");
            assert!((to - from) as f64 <= from as f64 / STEPS as f64, "{from}..={to} is too wide");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values_within_the_width_of_a_bucket() {
        let mut latencies = Histogram::default();
        (1..=10_000).for_each(|n| latencies.record(Duration::from_micros(n)));
        for (percent, exact) in [(0.0, 1.0), (50.0, 5_000.0), (95.0, 9_500.0), (99.0, 9_900.0), (100.0, 10_000.0)] {
            let found = latencies.percentile(percent).unwrap().as_secs_f64() * 1e6;
            assert!((found / exact - 1.0).abs() < 0.016, "p{percent} is {found} and not {exact}");
        }
        assert_eq!(latencies.max(), Some(Duration::from_micros(10_000)));
        assert_eq!(latencies.min(), Some(Duration::from_micros(1)));
    }

    #[test]
    fn a_merged_histogram_has_counted_both() {
        let [mut a, mut b] = [Histogram::default(), Histogram::default()];
        a.record(Duration::from_nanos(7));
        b.record(Duration::from_secs(7));
        a.merge(&b);
        a.merge(&Histogram::default());
        assert_eq!((a.count(), a.percentile(50.0)), (2, Some(Duration::from_nanos(7))));
        assert_eq!((a.min(), a.max()), (Some(Duration::from_nanos(7)), Some(Duration::from_secs(7))));
    }

    #[test]
    fn nothing_has_no_percentile() {
        let nothing = Histogram::default();
        assert_eq!((nothing.percentile(50.0), nothing.min(), nothing.max()), (None, None, None));
    }
}
