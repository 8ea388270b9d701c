//! Pipes carry lines on threads of their own, so that no runtime is held up by a pipe that is full
//! or empty.

use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Starts a thread that hands each line of `input` to `each` until that says no, and then says why
/// it ended to `done`: `None` if the lines ended by themselves.
pub(super) fn read(
    input: impl BufRead + Send + 'static,
    mut each: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    done: impl FnOnce(Option<io::Error>) + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        let failed = input.lines().find_map(|line| line.and_then(|line| each(&line)).err());
        done(failed);
    };
    thread::Builder::new().name("conformance-read".into()).spawn(run).map(drop)
}

/// Starts a thread that writes lines to `output` until all senders are gone or nobody reads any
/// more, and then closes it and runs `done`.
pub(super) fn write(
    output: impl Write + Send + 'static,
    done: impl FnOnce() + Send + 'static,
) -> io::Result<Sender<String>> {
    let (lines, queue) = channel();
    let run = move || {
        // Whoever waits for an answer to what cannot be written learns it from `done`.
        let _ = write_all(output, &queue);
        done();
    };
    thread::Builder::new().name("conformance-write".into()).spawn(run)?;
    Ok(lines)
}

fn write_all(mut output: impl Write, queue: &Receiver<String>) -> io::Result<()> {
    for mut line in queue {
        line.push('\n');
        output.write_all(line.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}
