//! What was measured: for people, for programs, and as a figure.

use std::time::Duration;

use leasehold_plot::{Histogram, Panel, distribution, short};
use serde_json::{Value, json};

use super::Plan;
use super::pairs::Pairs;
use crate::locks_view::terminal_width;
use crate::table::{Column, render};

const HEAD: [Column; 7] = [
    Column { title: "OPERATION", may_shrink: false, leave_out: 0 },
    Column { title: "COUNT", may_shrink: false, leave_out: 3 },
    Column { title: "PER SECOND", may_shrink: false, leave_out: 1 },
    Column { title: "P50", may_shrink: false, leave_out: 2 },
    Column { title: "P95", may_shrink: false, leave_out: 5 },
    Column { title: "P99", may_shrink: false, leave_out: 4 },
    Column { title: "MAX", may_shrink: false, leave_out: 6 },
];

/// The latencies that a store has shown.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(super) plan: Plan,
    pub(super) pairs: Pairs,
    /// How long the pairs took, all of them.
    pub(super) took: Duration,
    /// Nothing where one handle does not see the locks of another.
    pub(super) hand_over: Option<Histogram>,
}

impl Measured {
    /// A line about what was measured, and the table.
    pub(crate) fn text(&self, store: &str) -> String {
        let per_second = format!("{:.0}", self.pairs_per_second());
        let mut rows = vec![
            row("acquire + release", &self.pairs.pair, per_second),
            row("acquire", &self.pairs.acquire, String::new()),
            row("release", &self.pairs.release, String::new()),
        ];
        rows.extend(self.hand_over.as_ref().map(|times| row("hand-over", times, String::new())));
        let table = render(&HEAD, &rows, terminal_width());
        let note = match self.hand_over {
            Some(_) => "",
            None => "no hand-over: another handle does not see these locks\n",
        };
        format!("{}: {}\n\n{table}{note}", store.trim_end_matches(':'), self.circumstances())
    }

    pub(crate) fn json(&self, store: &str, fences_left: usize) -> Value {
        json!({
            "store": store,
            "tasks": self.plan.tasks,
            "keys": self.plan.keys,
            "seconds": self.took.as_secs_f64(),
            "pairs": self.pairs.pair.count(),
            "pairs_per_second": tenths(self.pairs_per_second()),
            "pair": latencies(&self.pairs.pair),
            "acquire": latencies(&self.pairs.acquire),
            "release": latencies(&self.pairs.release),
            "hand_over": self.hand_over.as_ref().map(latencies),
            "fences_left": fences_left,
        })
    }

    pub(crate) fn svg(&self, store: &str) -> String {
        let panel = |name, latencies| Panel { name, latencies };
        let mut panels = vec![panel("acquire", &self.pairs.acquire), panel("release", &self.pairs.release)];
        panels.extend(self.hand_over.as_ref().map(|times| panel("hand-over to one that waits in line", times)));
        let subtitle =
            format!("{}, {:.0} pairs of acquire and release a second", self.circumstances(), self.pairs_per_second());
        distribution(&format!("Latencies of {store}"), &subtitle, &panels)
    }

    fn circumstances(&self) -> String {
        let some = |number: u16, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
        format!("{}, {}, {:.1} s", some(self.plan.tasks, "task"), some(self.plan.keys, "key"), self.took.as_secs_f64())
    }

    fn pairs_per_second(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let pairs = self.pairs.pair.count() as f64;
        pairs / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

fn row(name: &str, times: &Histogram, per_second: String) -> [String; 7] {
    let at = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), short);
    let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| at(times.percentile(percent)));
    [name.to_owned(), times.count().to_string(), per_second, p50, p95, p99, at(times.max())]
}

fn latencies(times: &Histogram) -> Value {
    let micros = |time: Option<Duration>| time.map(|time| tenths(time.as_secs_f64() * 1e6));
    json!({
        "count": times.count(),
        "p50_us": micros(times.percentile(50.0)),
        "p95_us": micros(times.percentile(95.0)),
        "p99_us": micros(times.percentile(99.0)),
        "max_us": micros(times.max()),
    })
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
