//! What is counted beside times.

use std::collections::BTreeMap;
use std::time::Duration;

/// Numbers that grow.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Requests that came over the network: two that came in one packet are one.
    pub requests: f64,
    /// Commands that the server has run, also those that scripts call.
    pub commands: f64,
    /// The seconds that the processors worked for each process of the server, by its id. One that
    /// ends takes its seconds with it, so that a sum of all could become less.
    pub cpu: BTreeMap<u32, f64>,
}

/// How much they have grown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Requests.
    pub requests: f64,
    /// Commands.
    pub commands: f64,
    /// Seconds.
    pub cpu: f64,
}

impl Counters {
    /// What has come since `before`, and is not `own`, what it takes to ask.
    pub fn since(&self, before: &Self, own: Counted) -> Counted {
        let grown = |(pid, after): (&u32, &f64)| (after - before.cpu.get(pid).unwrap_or(&0.0)).max(0.0);
        Counted {
            requests: (self.requests - before.requests - own.requests).max(0.0),
            commands: (self.commands - before.commands - own.commands).max(0.0),
            cpu: self.cpu.iter().map(grown).sum(),
        }
    }
}

/// The processor time of a process with all its threads, to the nanosecond where the system tells.
pub fn cpu_of(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse().ok()
    });
    times.map(Duration::from_nanos).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_takes_nothing_from_what_the_others_have_used() {
        let of =
            |requests, cpu: &[(u32, f64)]| Counters { requests, commands: 0.0, cpu: cpu.iter().copied().collect() };
        let (before, after) = (of(10.0, &[(1, 5.0), (2, 7.0)]), of(15.0, &[(1, 6.0), (3, 0.5)]));
        let own = Counted { requests: 1.0, ..Counted::default() };
        assert_eq!(after.since(&before, own), Counted { requests: 4.0, commands: 0.0, cpu: 1.5 });
    }
}
