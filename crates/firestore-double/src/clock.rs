use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

/// Microseconds since 1970: Firestore knows no finer time.
pub(crate) type Micros = i64;

/// The server's clock: that of the machine, moved by an offset, and never behind what it has said.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    offset: Micros,
    last: Micros,
}

impl Clock {
    pub(crate) fn now(&self) -> Micros {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Micros::try_from(since_1970.as_micros()).unwrap_or(Micros::MAX);
        wall.saturating_add(self.offset).max(self.last)
    }

    /// The time of a read, which sees all commits up to then: whatever is committed from now on is
    /// later.
    pub(crate) fn read(&mut self) -> Micros {
        self.last = self.now();
        self.last
    }

    /// The time of the next commit, which is after all earlier ones.
    pub(crate) fn next_commit(&self) -> Micros {
        self.now().max(self.last.saturating_add(1))
    }

    /// Remembers that something was committed.
    pub(crate) fn committed(&mut self, time: Micros) {
        self.last = self.last.max(time);
    }

    pub(crate) fn set_offset(&mut self, offset: Micros) {
        self.offset = offset;
    }
}

/// The time as the protocol has it.
pub(crate) fn timestamp(time: Micros) -> Timestamp {
    let nanos = i32::try_from(time.rem_euclid(1_000_000) * 1000).unwrap_or_default();
    Timestamp { seconds: time.div_euclid(1_000_000), nanos }
}

/// The time as we calculate with it.
pub(crate) fn micros(timestamp: &Timestamp) -> Micros {
    timestamp.seconds.saturating_mul(1_000_000).saturating_add(i64::from(timestamp.nanos) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_times_increase_even_if_the_clock_goes_back() {
        let mut clock = Clock::default();
        clock.set_offset(3_600_000_000);
        let first = clock.next_commit();
        clock.committed(first);
        clock.set_offset(0);
        assert_eq!(clock.now(), first);
        assert_eq!(clock.next_commit(), first + 1);
    }

    #[test]
    fn a_commit_is_later_than_every_read_before_it() {
        let mut clock = Clock::default();
        clock.set_offset(3_600_000_000);
        let read = clock.read();
        clock.set_offset(0);
        assert_eq!(clock.next_commit(), read + 1);
    }

    #[test]
    fn times_survive_the_protocol() {
        for time in [0, 1, 999_999, 1_700_000_000_123_456, -1] {
            assert_eq!(micros(&timestamp(time)), time);
        }
    }
}
