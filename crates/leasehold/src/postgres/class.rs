//! Modes and lines in the words of the functions.

use std::num::NonZeroU16;

use crate::backend::{Line, Mode};

/// The class of a mode, and the most who may hold a key in it.
pub(super) fn of(mode: Mode) -> (&'static str, i32) {
    match mode {
        Mode::Exclusive => ("x", 1),
        Mode::Shared => ("s", i32::MAX),
        Mode::Permit { of } => ("p", i32::from(of.get())),
    }
}

/// The mode of a class, of which there may be so many.
pub(super) fn mode(class: Option<&str>, permits: Option<i32>) -> Mode {
    match class {
        Some("s") => Mode::Shared,
        Some("p") => {
            let of = permits.and_then(|permits| u16::try_from(permits).ok()).and_then(NonZeroU16::new);
            Mode::Permit { of: of.unwrap_or(NonZeroU16::MAX) }
        }
        _ => Mode::Exclusive,
    }
}

/// What a request does about the line, and for how long it has a place there.
pub(super) fn line(line: Line) -> (&'static str, Option<i64>) {
    match line {
        Line::Ignore => ("i", None),
        Line::Heed => ("h", None),
        Line::Join { lease } => ("j", Some(super::number(lease.as_millis()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_as_it_was_written() {
        let permits = |of| Mode::Permit { of: NonZeroU16::new(of).unwrap() };
        for mode in [Mode::Exclusive, Mode::Shared, permits(1), permits(u16::MAX)] {
            let (class, permits) = of(mode);
            assert_eq!(super::mode(Some(class), Some(permits)), mode);
        }
        assert_eq!(mode(None, None), Mode::Exclusive);
    }
}
