use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{Access, access};

use crate::bench::{Bench, Measured, Plan, progress};
use crate::exit::{self, End, Failure};
use crate::options::{Common, at_most, duration};
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::store::Store;
use crate::{event, output};

/// The most tasks: what is measured beyond that is the queue in this process.
const MOST_TASKS: u16 = 1024;
/// The most keys: each has a fence in the store until the end.
const MOST_KEYS: u16 = 10_000;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Measure how quick the store is
///
/// Acquires and releases locks for half of the time; in the other half it hands one lock over from
/// one handle to another that waits in line for it, measured from the start of the release to the
/// grant. Prints how many pairs of acquire and release there were in a second, and the latencies,
/// as percentiles: 99 of 100 were not longer than p99. The keys are its own, with names drawn at
/// random. It leaves no lock behind, and has the store forget the fences; where that is not
/// allowed, it says which ones stay.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// How many tasks acquire and release at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| at_most(text, MOST_TASKS))]
    tasks: u16,
    /// How many keys they use: with fewer than tasks, they wait for each other [default: as many as
    /// tasks]
    #[arg(long, value_name = "N", value_parser = |text: &str| at_most(text, MOST_KEYS))]
    keys: Option<u16>,
    /// How long to measure
    #[arg(long = "for", value_name = "DUR", default_value = "5s", value_parser = measured_time)]
    time: Duration,
    /// Draw the distributions of the latencies into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<End, Failure> {
    options.plot.as_deref().map_or(Ok(()), check_writable)?;
    let plan = Plan { tasks: options.tasks, keys: options.keys.unwrap_or(options.tasks), time: options.time };
    let store = Store::choose(&options.common, reporter)?;
    let mut signals = Signals::install().map_err(|error| Failure::signals(&error))?;
    let mut bench = tokio::select! {
        bench = Bench::open(&store, plan) => bench?,
        signal = signals.next_to_stop() => return Ok(End::Signal(signal)),
    };
    let measured = tokio::select! {
        biased;
        signal = signals.next_to_stop() => Err(signal),
        never = progress(reporter, bench.live()) => match never {},
        measured = bench.measure() => Ok(measured),
    };
    reporter.progress("");
    // A second signal is for those who do not want to wait for that either.
    let left = tokio::select! {
        left = bench.close(&store) => left,
        signal = signals.next_to_stop() => return Ok(End::Signal(signal)),
    };
    if let Some(left) = &left {
        reporter.report(&event::warning(&left.to_string()));
    }
    match measured {
        Err(signal) => Ok(End::Signal(signal)),
        Ok(measured) => {
            let fences_left = left.map_or(0, |left| left.fences);
            print(options, &store, &measured?, fences_left).map(|()| End::Code(0))
        }
    }
}

fn print(options: &Options, store: &Store, measured: &Measured, fences_left: usize) -> Result<(), Failure> {
    let url = store.public_url();
    if options.common.json {
        output::json([measured.json(&url, fences_left)])?;
    } else {
        output::text(&measured.text(&url))?;
    }
    let Some(file) = &options.plot else { return Ok(()) };
    std::fs::write(file, measured.svg(&url)).map_err(|error| unwritable(file, exit::UNAVAILABLE, &error))
}

/// Nobody wants to hear after a minute that the figure cannot be written.
fn check_writable(file: &Path) -> Result<(), Failure> {
    let directory = file.parent().filter(|directory| *directory != "").unwrap_or(Path::new("."));
    let (place, rights) = match file.exists() {
        true => (file, Access::WRITE_OK),
        false => (directory, Access::WRITE_OK | Access::EXEC_OK),
    };
    if file.is_dir() {
        let error = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(unwritable(file, exit::USAGE, &error));
    }
    access(place, rights).map_err(|error| unwritable(file, exit::USAGE, &error.into()))
}

fn unwritable(file: &Path, code: u8, error: &std::io::Error) -> Failure {
    Failure::new(code, format!("cannot write the figure to {}: {error}", file.display()))
        .hint("--plot takes the name of a file to write, for example latencies.svg")
}

fn measured_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < SHORTEST => Err("too short to measure anything\n  tip: 100ms is the least".to_owned()),
        long if long > LONGEST => Err("longer than an hour\n  tip: 1h is the most".to_owned()),
        time => Ok(time),
    }
}
