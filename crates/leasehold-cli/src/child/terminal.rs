//! Who may read the terminal. The command runs in a process group of its own, so it gets the
//! terminal only if we hand it over, as a shell does.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal, and whether the command has it.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    handed_over: bool,
}

impl Terminal {
    pub(super) fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Lets `group` read the terminal, if it is ours to give. Tells whether it was.
    pub(super) fn hand_to(&mut self, group: Pid) -> bool {
        if is_ours() {
            self.handed_over = set(group);
        }
        self.handed_over
    }

    /// Takes the terminal back, if it was handed over.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.handed_over) {
            set(getpgrp());
        }
    }
}

/// The terminal that controls us, wherever our stdin comes from: a command may ask for a password
/// there.
fn terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

fn is_ours() -> bool {
    terminal().is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Who takes the terminal without having it is stopped by SIGTTOU, unless that is blocked.
fn set(group: Pid) -> bool {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
    let done = terminal().is_some_and(|terminal| tcsetpgrp(terminal, group).is_ok());
    // The mask was valid a moment ago.
    let _ = before.thread_set_mask();
    done
}
