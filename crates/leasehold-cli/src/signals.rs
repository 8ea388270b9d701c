//! The signals that we hear, so that none of them ends us before the lock is given back.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal as Sig;
use tokio::signal::unix::{self, SignalKind};

/// A signal, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal(i32);

impl Signal {
    pub(crate) const CONT: Signal = Signal(Sig::CONT.as_raw());
    pub(crate) const HUP: Signal = Signal(Sig::HUP.as_raw());
    pub(crate) const INT: Signal = Signal(Sig::INT.as_raw());
    pub(crate) const QUIT: Signal = Signal(Sig::QUIT.as_raw());
    pub(crate) const TSTP: Signal = Signal(Sig::TSTP.as_raw());

    pub(crate) const fn new(number: i32) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> i32 {
        self.0
    }

    /// The signal to pass on. We have no means to send a real-time signal: it becomes TERM.
    pub(crate) fn to_send(self) -> Sig {
        Sig::from_named_raw(self.0).unwrap_or(Sig::TERM)
    }

    /// Whether it asks to stop. HUP does not: it tells a service to read its configuration again,
    /// and whoever ends at it does so by himself.
    pub(crate) fn asks_to_stop(self) -> bool {
        [Sig::INT, Sig::TERM, Sig::QUIT].contains(&self.to_send())
    }

    /// Whether it ends who has no command to pass it on to. The others are for the command.
    fn ends_a_wait(self) -> bool {
        [Sig::INT, Sig::TERM, Sig::QUIT, Sig::HUP].map(Sig::as_raw).contains(&self.0)
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

/// Those that programs send to each other. Not those by which the system tells a process of its own
/// faults and limits.
const HEARD: &[Sig] = &[
    Sig::INT,
    Sig::TERM,
    Sig::QUIT,
    Sig::HUP,
    Sig::USR1,
    Sig::USR2,
    Sig::ALARM,
    Sig::VTALARM,
    Sig::PROF,
    Sig::IO,
    Sig::URG,
    Sig::WINCH,
    #[cfg(target_os = "linux")]
    Sig::POWER,
];

/// The real-time signals, which have no names but `RTMIN+N`. The C library keeps those below to
/// itself.
#[cfg(target_os = "linux")]
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
#[cfg(not(target_os = "linux"))]
const REAL_TIME: std::ops::Range<i32> = 0..0;

/// A wait for signals. Those that were ignored when we started stay ignored: that is what `nohup`
/// is for.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// # Errors
    ///
    /// The system's, if a handler cannot be installed.
    pub(crate) fn install() -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new() };
        signals.hear(HEARD.iter().map(|signal| Signal(signal.as_raw())).chain(REAL_TIME.map(Signal)))?;
        Ok(signals)
    }

    /// Hears of Ctrl-Z too, and of what ends it.
    ///
    /// # Errors
    ///
    /// As [`install`](Signals::install).
    pub(crate) fn with_suspend(mut self) -> io::Result<Self> {
        self.hear([Signal::TSTP, Signal::CONT])?;
        Ok(self)
    }

    fn hear(&mut self, signals: impl IntoIterator<Item = Signal>) -> io::Result<()> {
        let ignored = ignored();
        // CONT continues who ignores it all the same.
        let is_heard = |signal: &Signal| *signal == Signal::CONT || !is_in(ignored, signal.0);
        for signal in signals.into_iter().filter(is_heard) {
            self.streams.push((signal, unix::signal(SignalKind::from_raw(signal.0))?));
        }
        Ok(())
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

    /// The next signal that asks to stop, or tells that the terminal is gone, for who has no
    /// command to pass the others on to. Cancel-safe.
    pub(crate) async fn next_to_stop(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal.ends_a_wait() {
                return signal;
            }
        }
    }

    /// Such a signal that has come already, if one has. Cancel-safe.
    pub(crate) async fn pending(&mut self) -> Option<Signal> {
        at_once(self.next_to_stop()).await
    }

    /// Whether `signal` has come already. Others stay where they are. Cancel-safe.
    pub(crate) async fn has_come(&mut self, signal: Signal) -> bool {
        let stream = self.streams.iter_mut().find(|(heard, _)| *heard == signal);
        let Some((_, stream)) = stream else { return false };
        at_once(stream.recv()).await.is_some()
    }
}

/// What is there without waiting.
async fn at_once<T>(next: impl Future<Output = T>) -> Option<T> {
    // The runtime looks for signals when nobody has anything to do.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        next = next => Some(next),
        () = std::future::ready(()) => None,
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

    /// The system may hand a signal to another thread, which takes its time.
    async fn eventually_pending(signals: &mut Signals) -> i32 {
        loop {
            if let Some(signal) = signals.pending().await {
                return signal.number();
            }
        }
    }

    #[tokio::test]
    async fn a_signal_that_has_come_is_pending_unless_it_is_for_a_command() {
        let mut signals = Signals::install().unwrap();
        let ourselves = rustix::process::getpid();
        assert_eq!(signals.pending().await, None);
        rustix::process::kill_process(ourselves, Sig::WINCH).unwrap();
        rustix::process::kill_process(ourselves, Sig::USR2).unwrap();
        rustix::process::kill_process(ourselves, Sig::HUP).unwrap();
        assert_eq!(eventually_pending(&mut signals).await, Sig::HUP.as_raw());
        assert_eq!(signals.pending().await, None);
    }

    #[tokio::test]
    async fn that_we_were_continued_is_told_once_and_takes_no_other_signal_away() {
        let mut signals = Signals::install().unwrap().with_suspend().unwrap();
        assert!(!signals.has_come(Signal::CONT).await);
        let ourselves = rustix::process::getpid();
        rustix::process::kill_process(ourselves, Sig::HUP).unwrap();
        rustix::process::kill_process(ourselves, Sig::CONT).unwrap();
        while !signals.has_come(Signal::CONT).await {}
        assert!(!signals.has_come(Signal::CONT).await);
        assert_eq!(eventually_pending(&mut signals).await, Sig::HUP.as_raw());
    }
}
