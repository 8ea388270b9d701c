use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::{History, Summary, check};
use crate::Harness;

/// How the clients that fight for a few keys behave.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// For how long, by the store's clock.
    pub duration: Duration,
    /// The ttls to choose from, in milliseconds.
    pub ttls: Vec<u64>,
    /// Of a hundred locks, how many are never released.
    pub abandoned: u8,
    /// Of a hundred acquires, how many may steal from the same holder.
    pub steals: u8,
    /// Of a hundred rounds of a client, how many begin with a forced release.
    pub forced: u8,
    /// Of a hundred acquires, how many join the line, if the store has one.
    pub joins: u8,
    /// The leases of places in line to choose from, in milliseconds.
    pub leases: Vec<u64>,
}

impl HistoryOptions {
    /// For stores on a manual clock, where time costs nothing.
    pub fn manual_clock() -> Self {
        Self { duration: Duration::from_secs(60), ..Self::real_clock() }
    }

    /// For stores on a real clock.
    pub fn real_clock() -> Self {
        Self {
            clients: 6,
            keys: 3,
            duration: Duration::from_secs(6),
            ttls: vec![20, 200, 5000],
            abandoned: 4,
            steals: 2,
            forced: 1,
            joins: 40,
            leases: vec![30, 500, 9000],
        }
    }
}

/// Lets several clients fight for a few keys through both handles, with locks that are extended,
/// abandoned, stolen and released by force, and checks what they saw. If the store has lines, one
/// of three keys is for readers and writers, one for permits, and many clients stand in line.
///
/// # Errors
///
/// An error of the store, the violations found, or that next to nothing happened.
pub async fn concurrent(harness: Arc<dyn Harness>, options: &HistoryOptions) -> Result<Summary, String> {
    // The time of the history is the store's, so that deadlines follow a manual clock too. A real
    // clock may be set back; the history's must not be.
    let (clock, started) = (harness.clone(), harness.now());
    let highest = std::sync::atomic::AtomicU64::new(0);
    let history = History::with_clock(move || {
        let now = u64::try_from(clock.now().since(started).as_nanos()).unwrap_or(u64::MAX);
        highest.fetch_max(now, std::sync::atomic::Ordering::AcqRel).max(now)
    });
    let lines = harness.backend().capabilities().lines;
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let client = Client {
                store: if number % 2 == 0 { harness.backend() } else { harness.peer() },
                harness: harness.clone(),
                history: history.clone(),
                options: options.clone(),
                lines,
                until: harness.now() + options.duration,
            };
            tokio::spawn(client.run(number))
        })
        .collect();
    for client in clients {
        let outcome = client.await.map_err(|failure| format!("a client failed: {failure}"))?;
        outcome.map_err(|error| format!("the store failed: {error:?}"))?;
    }
    let summary = check(&history.events()).map_err(|broken| {
        let shown: Vec<String> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
        format!("{} violations:\n{}", broken.len(), shown.join("\n"))
    })?;
    let in_line = !lines || options.joins == 0 || summary.queued > 0;
    if summary.granted < 10 || summary.released < 5 || summary.held == 0 || !in_line {
        return Err(format!("next to nothing happened: {summary:?}"));
    }
    Ok(summary)
}
