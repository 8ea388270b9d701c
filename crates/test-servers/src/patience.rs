use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Asks again every few milliseconds until the answer is yes. Fails when `limit` has passed, naming what was awaited.
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> io::Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > limit {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited {limit:?} in vain: {what}")));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
