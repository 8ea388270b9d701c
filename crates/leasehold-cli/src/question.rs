//! Asking the person at the terminal.

use std::io::{BufRead, IsTerminal};

use crate::reporter::Reporter;

/// Whether there is anybody to ask.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// Whether the answer is yes.
pub(crate) fn confirmed(reporter: &Reporter, question: &str) -> bool {
    reporter.ask(question);
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
