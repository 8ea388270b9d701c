//! The socket by which tests talk to the server: one JSON object in a line, one in answer.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::deadline::DEADLINE;

/// The control socket of a server that runs in `directory`.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join("control")
}

pub(super) fn is_ready(socket: &Path) -> bool {
    send(socket, &json!({"command": "now"})).is_ok()
}

pub(super) fn send(socket: &Path, command: &Json) -> io::Result<Json> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::other)
}

/// Sends commands by one connection, each when the one before it was answered.
pub(super) fn send_all(socket: &Path, commands: impl IntoIterator<Item = Json>) -> io::Result<()> {
    let mut stream = BufReader::new(UnixStream::connect(socket)?);
    for command in commands {
        stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_line(&mut answer)?;
        if !answer.starts_with(r#"{"ok""#) {
            return Err(io::Error::other(format!("{command} is refused: {answer}")));
        }
    }
    Ok(())
}
