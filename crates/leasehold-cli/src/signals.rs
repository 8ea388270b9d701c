//! The signals that ask us to stop.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{self, SignalKind};

/// A signal, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal(i32);

impl Signal {
    pub(crate) const TSTP: Signal = Signal(rustix::process::Signal::TSTP.as_raw());
    pub(crate) const HUP: Signal = Signal(rustix::process::Signal::HUP.as_raw());

    pub(crate) fn number(self) -> i32 {
        self.0
    }

    /// The name with `SIG`, for those that are known by one.
    pub(crate) fn name(self) -> Option<&'static str> {
        nix::sys::signal::Signal::try_from(self.0).ok().map(|signal| signal.as_str())
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// A wait for INT, TERM, HUP and QUIT. Those that were ignored when we started stay ignored: that
/// is what `nohup` is for.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// # Errors
    ///
    /// The system's, if a handler cannot be installed.
    pub(crate) fn install() -> io::Result<Self> {
        let ask_to_stop = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let ignored = ignored();
        let listen = |kind: SignalKind| Ok((Signal(kind.as_raw_value()), unix::signal(kind)?));
        let heard = ask_to_stop.into_iter().filter(|kind| !is_in(ignored, kind.as_raw_value()));
        Ok(Self { streams: heard.map(listen).collect::<io::Result<_>>()? })
    }

    /// Hears of Ctrl-Z too.
    ///
    /// # Errors
    ///
    /// As [`install`](Signals::install).
    pub(crate) fn with_suspend(mut self) -> io::Result<Self> {
        if !is_in(ignored(), Signal::TSTP.0) {
            self.streams.push((Signal::TSTP, unix::signal(SignalKind::from_raw(Signal::TSTP.0))?));
        }
        Ok(self)
    }

    /// The next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn is_in(mask: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1))
}

/// The signals that are ignored now, as a mask; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_count_from_signal_1() {
        assert!(is_in(0b1, 1) && is_in(0b10, 2) && !is_in(0b10, 1));
        assert!(!is_in(u64::MAX, 0) && !is_in(u64::MAX, 65));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(Signal(15).to_string(), "SIGTERM");
        assert_eq!(Signal(40).to_string(), "signal 40");
    }
}
