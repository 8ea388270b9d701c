//! What goes to stdout. What is said meanwhile goes to stderr: see the reporter.

use std::io::Write;

use serde_json::Value;

use crate::escape::{escape, json_line};
use crate::exit::Failure;

/// Clears the terminal and starts at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Lines for people. Nothing in them can make the terminal do anything.
///
/// # Errors
///
/// Nobody reads it, or it cannot be written. So it is with all of these.
pub(crate) fn text(lines: &str) -> Result<(), Failure> {
    print(&plain(lines))
}

/// The same on an empty screen.
pub(crate) fn screen(lines: &str) -> Result<(), Failure> {
    print(&format!("{CLEAR}{}", plain(lines)))
}

/// An object per line, for programs.
pub(crate) fn json(values: impl IntoIterator<Item = Value>) -> Result<(), Failure> {
    print(&values.into_iter().map(|value| json_line(&value)).collect::<String>())
}

/// A text of our own, for programs that take it as it is.
pub(crate) fn script(text: &str) -> Result<(), Failure> {
    print(text)
}

/// What people see of lines.
pub(crate) fn plain(lines: &str) -> String {
    lines.lines().map(|line| escape(line) + "\n").collect()
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
