use std::io;
use std::time::{Duration, Instant};

use leasehold::{Key, LockState, Loss};
use rustix::process::{Signal as Sig, kill_current_process_group};
use tokio::signal::unix::{self, SignalKind};

use super::clock::Clock;
use super::deadline::Rules;
use super::ended::{Cause, Ended};
use super::job::{Job, Status};
use super::leases::Leases;
use super::terminal::Terminal;
use crate::event;
use crate::reporter::Reporter;
use crate::signals::{Signal, Signals};

/// A second signal that comes later than this after the first means that the sender insists.
const INSISTING: Duration = Duration::from_secs(1);

/// How long others of a group may take to end after its leader.
const LINGERING: Duration = Duration::from_millis(500);

/// Who was away for so long was stopped, although the news of being continued may come later.
const BRIEFEST_STOP: Duration = Duration::from_millis(5);

/// How often to look whether what was told to stop has done so. Grandchildren end without telling
/// us.
const LOOK: Duration = Duration::from_millis(20);

/// A command that was told to stop.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    told_to_stop: Instant,
    kill_at: Instant,
}

/// Watches over a command and its locks: passes signals on, stops the command before the lease can
/// end.
pub(crate) struct Supervisor<'a> {
    job: Job,
    /// None if the command runs without a lock.
    leases: Leases,
    has_max_hold: bool,
    rules: Rules,
    /// When the lease ends, as last seen while it was held.
    deadline: Option<Instant>,
    cause: Option<Cause>,
    stopping: Option<Stopping>,
    killed: bool,
    interrupted: bool,
    terminal: Terminal,
    clock: Clock,
    reporter: &'a Reporter,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        job: Job,
        terminal: Terminal,
        leases: Leases,
        (grace, ttl, max_hold): (Duration, Duration, Option<Duration>),
        reporter: &'a Reporter,
    ) -> Self {
        Self {
            job,
            leases,
            has_max_hold: max_hold.is_some(),
            rules: Rules::new(grace, ttl, max_hold),
            deadline: None,
            cause: None,
            stopping: None,
            killed: false,
            interrupted: false,
            terminal,
            clock: Clock::new(),
            reporter,
        }
    }

    /// Watches until the command has ended; until all its descendants have ended too, if it was
    /// stopped.
    ///
    /// # Errors
    ///
    /// The system's, if we cannot hear of our children.
    pub(crate) async fn watch(mut self, signals: &mut Signals) -> io::Result<Ended> {
        let mut children = unix::signal(SignalKind::child())?;
        let mut is_lost = false;
        loop {
            self.job.reap();
            self.notice_interrupt();
            if self.is_over() {
                break;
            }
            if let Some(signal) = self.job.take_stop() {
                self.stopped_by(signal, signals).await;
            }
            let look_at = self.tend().await;
            tokio::select! {
                _ = children.recv() => {}
                signal = signals.next() => self.got(signal, signals).await,
                (key, loss) = self.leases.lost(), if !is_lost => is_lost = self.lost(&key, loss),
                () = self.clock.sleep_towards(look_at) => {}
            }
        }
        self.linger().await;
        Ok(self.finish())
    }

    /// Ctrl-C reached a command that has the terminal, and not us. It asks all of the command to
    /// stop, all the same.
    fn notice_interrupt(&mut self) {
        let Some(Status::Signalled(number)) = self.job.status() else { return };
        let signal = Signal::new(number);
        let of_terminal = [Signal::INT, Signal::QUIT].contains(&signal) && self.terminal.is_lent();
        if of_terminal && self.stopping.is_none() {
            self.interrupted = true;
            self.stop(Cause::Signal(signal), signal.to_send(), self.clock.now() + self.rules.grace());
        }
    }

    /// The signal that ended the command may have reached others of its group too. They get a
    /// moment to end, before they count as left running.
    async fn linger(&mut self) {
        let until = self.clock.now() + LINGERING;
        let by_signal = matches!(self.job.status(), Some(Status::Signalled(_)));
        while by_signal && self.stopping.is_none() && !self.job.is_gone() && self.clock.now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_over(&mut self) -> bool {
        match self.stopping {
            None => self.job.status().is_some(),
            Some(_) => self.killed || self.job.is_gone(),
        }
    }

    fn finish(mut self) -> Ended {
        let status = self.job.status();
        self.terminal.take_back(!matches!(status, Some(Status::Exited(_))));
        let (code, signal) = status.map_or((None, None), Status::parts);
        self.reporter.report(&event::exited(code, signal));
        if self.stopping.is_none() {
            let left = self.job.left_running();
            if left > 0 {
                self.reporter.report(&event::left_running(left));
            }
        }
        Ended { status, cause: self.cause, interrupted: self.interrupted, killed: self.killed }
    }

    /// Does what is due, and tells when to look again.
    async fn tend(&mut self) -> Instant {
        let now = self.clock.now();
        let lease_ends = self.lease_ends(now);
        if let Some(stopping) = self.stopping {
            let kill_at = match lease_ends {
                Some(deadline) => stopping.kill_at.min(self.rules.kill_at(stopping.told_to_stop, deadline)),
                None => stopping.kill_at,
            };
            if now >= kill_at {
                self.kill().await;
            }
            return kill_at.min(now + LOOK);
        }
        if self.job.is_stopped() && self.may_run() && self.terminal.lend() {
            // It stopped while we were in the background, and a shell does not tell who it brings
            // to the foreground.
            self.job.signal_group(Sig::CONT);
        }
        let Some(deadline) = lease_ends else { return now + Duration::from_secs(3600) };
        let stop_at = self.rules.stop_at(deadline);
        if now >= stop_at {
            self.about_to_lose(deadline);
            return now;
        }
        stop_at
    }

    /// When the first lease ends unless it is renewed; none if there is no lease any more.
    fn lease_ends(&mut self, now: Instant) -> Option<Instant> {
        let remaining = self.leases.remaining().filter(|remaining| !remaining.is_zero())?;
        self.deadline = Some(now + remaining);
        self.deadline
    }

    /// The lease will end soon, and no renewal has come.
    fn about_to_lose(&mut self, deadline: Instant) {
        let now = self.clock.now();
        let (reason, message) = match self.leases.state() {
            Some(LockState::Held) if self.has_max_hold => {
                (Loss::MaxHold, "it may not be held for longer than --max-hold")
            }
            Some(LockState::Uncertain) => (Loss::Expired, "the store did not renew it in time"),
            _ => (Loss::Expired, "it was not renewed in time"),
        };
        self.stop(Cause::Lost, Sig::TERM, self.rules.kill_at(now, deadline));
        self.say_lost(reason.as_str(), message);
    }

    /// A lock is gone. Tells whether that is a loss.
    fn lost(&mut self, key: &Key, loss: Loss) -> bool {
        if loss == Loss::Released {
            // The command gave it back itself, and goes on without.
            self.leases.forget(key);
            if self.leases.is_empty() {
                self.reporter.report(&event::released());
            }
            return false;
        }
        let now = self.clock.now();
        let kill_at = self.rules.kill_late_at(now, self.deadline.unwrap_or(now));
        let known = self.cause == Some(Cause::Lost);
        self.stop(Cause::Lost, Sig::TERM, kill_at);
        if !known {
            self.say_lost(loss.as_str(), &loss.to_string());
        }
        true
    }

    fn say_lost(&self, reason: &str, message: &str) {
        let grace =
            self.stopping.map_or(Duration::ZERO, |stopping| stopping.kill_at.duration_since(stopping.told_to_stop));
        self.reporter.report(&event::lost(reason, message, grace));
    }

    /// We got a signal. All are passed on; if we were asked to stop, we insist.
    async fn got(&mut self, signal: Signal, signals: &mut Signals) {
        self.reporter.report(&event::signal(signal));
        if signal == Signal::TSTP {
            self.suspend(self.terminal.was_lent(), signals).await;
            return;
        }
        if signal == Signal::CONT && !self.may_run() {
            return;
        }
        if signal == Signal::CONT && self.terminal.was_lent() {
            self.terminal.lend();
        }
        if !signal.asks_to_stop() {
            self.job.signal_group(signal.to_send());
            return;
        }
        let now = self.clock.now();
        // A service manager may send two at once and mean one.
        let insists = self.stopping.is_some_and(|stopping| now.duration_since(stopping.told_to_stop) >= INSISTING);
        let kill_at = if insists { now } else { now + self.rules.grace() };
        self.stop(Cause::Signal(signal), signal.to_send(), kill_at);
    }

    /// Tells the command to stop, and notes when to kill it. A loss outweighs a signal, and no kill
    /// is put off.
    fn stop(&mut self, cause: Cause, signal: Sig, kill_at: Instant) {
        let now = self.clock.now();
        if self.cause != Some(Cause::Lost) && (self.cause.is_none() || cause == Cause::Lost) {
            self.cause = Some(cause);
        }
        let told_to_stop = self.stopping.map_or(now, |stopping| stopping.told_to_stop);
        let kill_at = self.stopping.map_or(kill_at, |stopping| stopping.kill_at.min(kill_at));
        self.stopping = Some(Stopping { told_to_stop, kill_at });
        if kill_at > now {
            match cause {
                Cause::Signal(_) => self.job.signal_group(signal),
                Cause::Lost => self.job.signal_all(signal),
            }
            // What is stopped cannot hear it.
            self.job.signal_all(Sig::CONT);
        }
    }

    async fn kill(&mut self) {
        if self.killed {
            return;
        }
        self.killed = true;
        if !self.job.is_gone() {
            self.reporter.report(&event::killed());
            let left = self.job.kill_all().await;
            if left > 0 {
                self.reporter.report(&event::survived(left));
            }
        }
    }

    /// A signal stopped the command. Programs do that to themselves when they need the terminal and
    /// do not have it.
    async fn stopped_by(&mut self, signal: i32, signals: &mut Signals) {
        if !self.may_run() {
            return;
        }
        let needs_terminal = signal == Sig::TTIN.as_raw() || signal == Sig::TTOU.as_raw();
        if self.terminal.lend() {
            self.job.signal_group(Sig::CONT);
        } else if needs_terminal || self.terminal.was_lent() {
            self.suspend(true, signals).await;
        }
        // Somebody stopped a command that has nothing to do with a terminal. He will continue it,
        // and the lock is renewed meanwhile.
    }

    /// Stops the command, then ourselves, as Ctrl-Z demands. We do not renew the lock while we are
    /// stopped; if it ran out meanwhile, the command does not get to run again.
    async fn suspend(&mut self, needs_terminal: bool, signals: &mut Signals) {
        self.reporter.report(&event::suspended());
        let running = self.job.pause();
        let had_terminal = self.terminal.is_lent();
        self.terminal.take_from_stopped();
        let stopped = self.clock.now();
        // Unlike SIGSTOP, this one is ignored if nobody is there to continue us.
        let _ = kill_current_process_group(Sig::TTOU);
        let time = self.clock.now().duration_since(stopped);
        let continued = signals.has_come(Signal::CONT).await || time >= BRIEFEST_STOP;
        if !continued && !had_terminal {
            // Nobody stopped us, so nobody will give the command the terminal it wants: it would
            // ask over and over.
            self.stop(Cause::Signal(Signal::HUP), Sig::HUP, self.clock.now() + self.rules.grace());
            return;
        }
        if !self.may_run() {
            return;
        }
        if needs_terminal {
            self.terminal.lend();
        }
        self.job.resume(&running);
    }

    /// Whether the command may go on if it is stopped.
    fn may_run(&self) -> bool {
        self.stopping.is_none() && self.leases.state() != Some(LockState::Lost)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use leasehold::memory::Memory;
    use leasehold::testing::ManualClock;
    use leasehold::{Guard, Locks};

    use super::*;
    use crate::child::descendants::{State, descendants};

    const TTL: Duration = Duration::from_secs(30);

    /// A lock that nobody renews, on a clock that stands still.
    async fn held() -> (Guard, ManualClock) {
        let clock = ManualClock::new();
        let locks = Locks::builder(Memory::with_clock(&clock)).clock(&clock).build();
        (locks.lock("k").ttl(TTL).heartbeat(false).acquire().await.unwrap(), clock)
    }

    fn supervisor<'a>(guard: &Guard, reporter: &'a Reporter) -> Supervisor<'a> {
        let mut sleep = std::process::Command::new("sleep");
        let job = Job::of(sleep.arg("600").process_group(0).spawn().unwrap());
        let grace = Duration::from_secs(10);
        Supervisor::new(job, Terminal::none(), Leases::new(vec![guard.lease().clone()]), (grace, TTL, None), reporter)
    }

    #[tokio::test]
    async fn a_lease_that_ended_long_ago_while_the_machine_slept_leaves_no_grace() {
        let (guard, _) = held().await;
        let reporter = Reporter::new(false, true, false);
        for (asleep, grace) in [(TTL, Duration::from_millis(500)), (2 * TTL, Duration::ZERO)] {
            let mut supervisor = supervisor(&guard, &reporter);
            supervisor.tend().await;
            supervisor.clock.suspend(asleep);
            supervisor.lost(guard.key(), Loss::Expired);
            let Stopping { told_to_stop, kill_at } = supervisor.stopping.unwrap();
            assert!(kill_at.duration_since(told_to_stop) <= grace, "{asleep:?}");
            supervisor.kill().await;
        }
    }

    #[tokio::test]
    async fn a_command_whose_lock_ran_out_while_it_was_stopped_does_not_run_again() {
        let (guard, clock) = held().await;
        let reporter = Reporter::new(false, true, false);
        let mut supervisor = supervisor(&guard, &reporter);
        let mut signals = Signals::install().unwrap();
        let is_stopped = || descendants().iter().any(|process| process.state == State::Stopped);
        supervisor.job.pause();
        test_servers::eventually("it is stopped", is_stopped);
        supervisor.got(Signal::CONT, &mut signals).await;
        test_servers::eventually("it runs", || !is_stopped());
        supervisor.job.pause();
        test_servers::eventually("it is stopped again", is_stopped);
        clock.advance(TTL * 2);
        supervisor.got(Signal::CONT, &mut signals).await;
        assert!(is_stopped() && !supervisor.may_run());
        supervisor.kill().await;
    }

    #[tokio::test]
    async fn a_lease_that_is_about_to_end_is_noticed_soon_after_the_machine_wakes_up() {
        let (guard, clock) = held().await;
        let reporter = Reporter::new(false, true, false);
        let supervisor = supervisor(&guard, &reporter);
        let mut signals = Signals::install().unwrap();
        let asleep = async {
            // The supervisor sleeps by then; all its timers would take twenty seconds.
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(TTL * 9 / 10);
        };
        let watched = async { tokio::join!(supervisor.watch(&mut signals), asleep).0 };
        let ended = tokio::time::timeout(TTL / 2, watched).await.expect("it sleeps on").unwrap();
        assert_eq!(ended.cause, Some(Cause::Lost));
    }
}
