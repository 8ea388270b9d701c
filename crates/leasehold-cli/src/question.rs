//! Asking the person at the terminal.

use std::io::{BufRead, IsTerminal, Write};

/// Whether there is anybody to ask.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// Whether the answer is yes.
pub(crate) fn confirmed(question: &str) -> bool {
    let _ = std::io::stderr().write_all(format!("{question} [y/N] ").as_bytes());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
