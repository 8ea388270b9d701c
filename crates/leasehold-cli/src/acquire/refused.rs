use leasehold::{Error, ErrorCode, Key};

use super::Wanted;
use super::seen::Obstacle;
use crate::event::Level;
use crate::exit::Failure;
use crate::text;

/// Why a lock was not had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Not in the time given to wait, or not at all. With who was last seen with it.
    Error(Error, Option<Obstacle>),
    /// The `run` that we are part of holds the lock of this key: it would never come.
    HeldAroundUs(Key),
}

impl Refused {
    /// Only what more time would mend: not a store that refuses us.
    pub(crate) fn may_proceed(&self) -> bool {
        match self {
            Refused::Error(error, _) => error.is_retryable() || error.code() == ErrorCode::AcquisitionTimeout,
            Refused::HeldAroundUs(_) => true,
        }
    }

    /// What to say of it. Whoever was seen with the lock has it still, if the last look was not
    /// answered in time.
    pub(crate) fn failure(&self, wanted: &Wanted<'_>) -> Failure {
        let code = wanted.options.conflict_exit_code;
        let (error, seen) = match self {
            Refused::Error(error, seen) => (error, seen.as_ref()),
            Refused::HeldAroundUs(key) => {
                let message = format!("'{}' is held by the `leasehold run` that this is part of", key.as_str());
                return Failure::new(code, message).hint(
                    "do without the second lock, or take another key; what runs in the background and may wait for \
                     the end of the first is started with env -u LEASEHOLD_HELD",
                );
            }
        };
        let seen = seen.filter(|_| error.code() == ErrorCode::AcquisitionTimeout);
        // The error does not say which of several locks it is about.
        let of_error = error.contention().filter(|_| wanted.keys.len() == 1 || seen.is_none());
        let Some(contention) = of_error.or(seen.map(|seen| &seen.contention)) else { return Failure::from(error) };
        let name = match (wanted.keys, seen) {
            ([_, _, ..], Some(seen)) => text::quoted(std::slice::from_ref(&seen.key)),
            (keys, _) => text::quoted(keys),
        };
        let mut message = format!("{name} is {}", text::obstacle(contention, contention.held_for()));
        let mode = wanted.options.mode();
        let has_room = contention.mode.goes_with(mode) && contention.holders < mode.limit();
        if contention.holders > 0 && has_room {
            message.push_str(", which leaves room, but somebody is before us in line");
        } else if contention.holders > 0 {
            let free_in = text::duration(contention.free_in());
            message.push_str(&format!(", for at most {free_in} more unless extended"));
        }
        // That somebody has the lock is an answer. Whoever takes it for success, or wants to hear
        // of errors alone, has it in the exit code.
        Failure::new(code, message)
            .hint("wait for it with a longer --wait, or look at it with leasehold show")
            .level(if code == 0 { Level::Detail } else { Level::Notice })
    }
}
