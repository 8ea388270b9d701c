//! Latencies, counted and drawn: a histogram of constant size, and figures in SVG.
//!
//! For `leasehold bench --plot` and the page of benchmarks. No plotting library: two kinds of
//! figures need a rectangle, a line and a text.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_plot::{Histogram, Panel, distribution};
//!
//! let mut latencies = Histogram::default();
//! (1..=100).for_each(|n| latencies.record(Duration::from_micros(n)));
//! assert_eq!((latencies.count(), latencies.max()), (100, Some(Duration::from_micros(100))));
//!
//! let panel = Panel { name: "acquire", latencies: &latencies };
//! let svg = distribution("Latencies of my store", "one task", &[panel]);
//! assert!(svg.starts_with("<svg "));
//! ```

mod bars;
mod distribution;
mod histogram;
mod scale;
mod svg;
mod time;

pub use bars::{Bar, Group, bars};
pub use distribution::{Panel, distribution};
pub use histogram::Histogram;
pub use time::short;
