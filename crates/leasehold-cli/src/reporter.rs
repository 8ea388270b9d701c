//! What is said on stderr.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::child::write_always;
use crate::escape::escape;
use crate::event::{Event, Level};

/// The longest to wait at the end for a reader that does not read.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Says things on stderr from a thread of its own: a reader that does not read must not keep us
/// from stopping a command whose lock is lost.
#[derive(Debug)]
pub(crate) struct Reporter {
    lines: Option<Sender<String>>,
    done: Receiver<()>,
    most: Level,
    json: bool,
    /// The store that errors are about, as others may see it.
    store: OnceLock<String>,
}

impl Reporter {
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool) -> Self {
        let most = match (quiet, verbose || json) {
            (true, _) => Level::Problem,
            (false, true) => Level::Detail,
            (false, false) => Level::Notice,
        };
        let (lines, received) = channel::<String>();
        let (finished, done) = channel();
        let thread = thread::Builder::new().name("leasehold-reporter".into()).spawn(move || {
            write_always();
            for line in received {
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            let _ = finished.send(());
        });
        Self { lines: thread.is_ok().then_some(lines), done, most, json, store: OnceLock::new() }
    }

    /// Which store errors are about from now on.
    pub(crate) fn note_store(&self, public_url: String) {
        let _ = self.store.set(public_url);
    }

    /// The store that errors are about, once it is known.
    pub(crate) fn store(&self) -> Option<&str> {
        self.store.get().map(String::as_str)
    }

    pub(crate) fn report(&self, event: &Event) {
        if event.level <= self.most {
            self.say(if self.json { event.json() } else { event.text() });
        }
    }

    /// Asks whoever sits at the terminal.
    pub(crate) fn ask(&self, question: &str) {
        self.say(format!("{} [y/N] ", escape(question)));
    }

    /// Shows how far we are, in place of what was shown before; an empty line takes it away. Only
    /// on a terminal.
    pub(crate) fn progress(&self, line: &str) {
        if !self.json && self.most > Level::Problem && std::io::stderr().is_terminal() {
            self.say(format!("\r\x1b[K{}", escape(line)));
        }
    }

    fn say(&self, text: String) {
        match &self.lines {
            Some(lines) => {
                let _ = lines.send(text);
            }
            // All that is said then is that there can be no thread.
            None => {
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        }
    }

    /// Whether the system lets us start threads.
    pub(crate) fn has_thread(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn verbose(&self) -> bool {
        self.most == Level::Detail
    }

    pub(crate) fn json(&self) -> bool {
        self.json
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}
