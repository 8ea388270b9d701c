//! Who has the terminal. The command runs in a process group of its own, so it has the terminal
//! only if we lend it, as a shell does.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::io::Errno;
use rustix::process::{Pid, getpgrp, test_kill_process_group};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::descendants::descendants;

/// The terminal, and whether the command has it. Taken back when it is dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    lent: bool,
    /// The command has had it at some time.
    was_lent: bool,
    /// The group of the command.
    group: Option<Pid>,
    /// The settings before it was lent.
    before: Option<Termios>,
    /// The settings that the command had made when it was stopped.
    of_command: Option<Termios>,
}

impl Terminal {
    /// For a command that is about to start. It gets the terminal from the start if we have it and
    /// the command will read from it and write to it. Otherwise it gets it when it asks: those who
    /// are in a pipeline with us may need it too.
    pub(crate) fn for_command() -> Self {
        let lent = isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout()) && is_ours();
        let before = if lent { settings() } else { None };
        Self { lent, was_lent: lent, group: None, before, of_command: None }
    }

    /// For tests that have none.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { lent: false, was_lent: false, group: None, before: None, of_command: None }
    }

    /// The command has started, in this group.
    pub(super) fn started(&mut self, group: Pid) {
        self.group = Some(group);
        if !cfg!(target_os = "linux") && self.lent {
            // Without the shim the command could not take it before it started.
            give_to(group);
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Whether the command has had it at some time, and so will want it again.
    pub(super) fn was_lent(&self) -> bool {
        self.was_lent
    }

    /// Lends it to the command, if it is ours now. Tells whether it was.
    pub(super) fn lend(&mut self) -> bool {
        let Some(group) = self.group.filter(|_| is_ours()) else { return false };
        self.before = settings();
        if let Some(settings) = self.of_command.take() {
            set(&settings);
        }
        self.lent = give_to(group);
        self.was_lent |= self.lent;
        self.lent
    }

    /// Takes it back from a command that is stopped. It will find its settings again.
    pub(super) fn take_from_stopped(&mut self) {
        if self.lent {
            self.of_command = settings();
        }
        self.take_back(true);
    }

    /// Takes it back. A command that came to a bad end may have left settings that nobody can work
    /// with; one that ended by itself may have made them on purpose.
    pub(super) fn take_back(&mut self, with_settings: bool) {
        if !std::mem::take(&mut self.lent) || !is_of_command(self.group) {
            return;
        }
        give_to(getpgrp());
        if let Some(settings) = self.before.take_if(|_| with_settings) {
            set(&settings);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back(true);
    }
}

/// Takes the terminal for this process, the command that is about to start.
pub(super) fn take() {
    give_to(getpgrp());
}

/// The terminal that controls us, wherever our stdin comes from: a command may ask for a password
/// there.
fn terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

fn is_ours() -> bool {
    terminal().is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Whether the group that has the terminal is one of the command, which may be a shell with jobs of
/// its own, or is gone. Otherwise the shell above us has taken it meanwhile.
fn is_of_command(command: Option<Pid>) -> bool {
    let Some(terminal) = terminal() else { return false };
    let Ok(group) = tcgetpgrp(terminal) else { return true };
    Some(group) == command
        || test_kill_process_group(group) == Err(Errno::SRCH)
        || descendants().iter().any(|process| process.group == group.as_raw_nonzero().get())
}

fn settings() -> Option<Termios> {
    tcgetattr(terminal()?).ok()
}

fn set(settings: &Termios) -> bool {
    unstopped(|terminal| tcsetattr(terminal, OptionalActions::Now, settings).is_ok())
}

fn give_to(group: Pid) -> bool {
    unstopped(|terminal| tcsetpgrp(terminal, group).is_ok())
}

/// Who changes the terminal without having it is stopped by SIGTTOU, unless that is blocked.
fn unstopped(change: impl FnOnce(&File) -> bool) -> bool {
    let Ok(before) = just_ttou().thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
    let done = terminal().is_some_and(|terminal| change(&terminal));
    // The mask was valid a moment ago.
    let _ = before.thread_set_mask();
    done
}

/// Lets this thread write to the terminal whoever has it. `stty tostop` would stop us.
pub(crate) fn write_always() {
    let _ = just_ttou().thread_block();
}

fn just_ttou() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}
