//! The last step before the command: a process that ties its life to ours and becomes the command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;

use super::terminal;
use crate::event;
use crate::exit::{self, Failure};
use crate::reporter::Reporter;

/// The first argument by which we recognise ourselves.
const NAME: &str = "__exec";
const JSON: &str = "json";
const TEXT: &str = "text";
/// Whether to take the terminal.
const TAKE: &str = "take";
const LEAVE: &str = "leave";

/// A command that starts `words` through this program. On Linux the command then dies if we are
/// killed, so that it does not go on without its lock.
pub(super) fn command(words: &[OsString], with_terminal: bool, json: bool) -> Command {
    if !cfg!(target_os = "linux") {
        let mut command = Command::new(words.first().map_or(OsStr::new(""), OsString::as_os_str));
        command.args(words.iter().skip(1));
        return command;
    }
    // Not by path: the program may have been replaced since it was started.
    let mut command = Command::new("/proc/self/exe");
    command.arg(NAME).arg(std::process::id().to_string());
    command.arg(if json { JSON } else { TEXT }).arg(if with_terminal { TAKE } else { LEAVE }).args(words);
    command
}

/// If this process is the shim, becomes the command; the exit code if that fails.
pub(crate) fn main(arguments: &[OsString]) -> Option<u8> {
    let [_, name, parent, format, with_terminal, program, rest @ ..] = arguments else { return None };
    if name != NAME {
        return None;
    }
    let parent: i32 = parent.to_str()?.parse().ok()?;
    if !die_with(parent) {
        return Some(exit::CANNOT_EXECUTE);
    }
    if with_terminal == TAKE {
        // Before the command can look whether it has it.
        terminal::take();
    }
    let error = Command::new(program).args(rest).exec();
    let failure = cannot_run(program, rest, &error);
    Reporter::new(format == JSON, false, false).report(&event::error(&failure, false));
    Some(failure.code)
}

/// Why the command did not start.
pub(super) fn cannot_run(program: &OsStr, rest: &[OsString], error: &io::Error) -> Failure {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            // Somebody may have meant several keys.
            let hint = match rest.iter().any(|word| word == "--") {
                true => "check the name, or give a path; if it is a key: leasehold run --all KEY KEY -- CMD",
                false => "check the name, or give a path; a script also needs its interpreter",
            };
            Failure::new(exit::NOT_FOUND, format!("cannot run '{program}': not found")).hint(hint)
        }
        _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => {
            Failure::new(exit::CANNOT_EXECUTE, format!("cannot run '{program}': {error}"))
                .hint("raise the limit, for example with ulimit -n")
        }
        _ => Failure::new(exit::CANNOT_EXECUTE, format!("cannot run '{program}': {error}"))
            .hint("check that it is a program and may be executed"),
    }
}

/// Has the system kill this process when `parent` ends; false if that has happened already.
#[cfg(target_os = "linux")]
fn die_with(parent: i32) -> bool {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok() && getppid() == Pid::from_raw(parent)
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: i32) -> bool {
    true
}
