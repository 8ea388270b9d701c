use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take that is certain to happen, on a machine that is busy with other
/// tests: a server that starts or stops, an answer, a condition that is waited for. Whoever waits
/// longer has found a hang.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for a condition, which is asked for every few milliseconds.
///
/// # Panics
///
/// If it does not hold within the [`DEADLINE`], naming what was waited for.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    wait_until(what, condition).unwrap_or_else(|error| panic!("{error}"));
}

/// As [`eventually`], with an error instead of a panic.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> io::Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > DEADLINE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited in vain for {DEADLINE:?}: {what}")));
        }
        sleep(Duration::from_millis(3));
    }
    Ok(())
}
