//! What `run` writes beside a lock about itself, for those who look at it.

use std::ffi::OsString;

use nix::unistd::{Uid, User};
use serde_json::Value;

use crate::task::shell_line;
use crate::text;

/// The names of the notes, in the order in which they matter.
pub(crate) const PID: &str = "pid";
pub(crate) const USER: &str = "user";
pub(crate) const COMMAND: &str = "command";

/// The most characters of a command. There is more room, but it is for the notes of users.
const LONGEST_COMMAND: usize = 200;

/// Which process we are, whose, and what it runs.
pub(crate) fn of_process(command: Option<&Vec<OsString>>) -> Vec<(&'static str, Value)> {
    let uid = Uid::effective();
    let user = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    let command = command.map(|words| text::cut(&shell_line(words), LONGEST_COMMAND));
    let mut notes = vec![(PID, std::process::id().into()), (USER, user.into())];
    notes.extend(command.map(|command| (COMMAND, command.into())));
    notes
}
