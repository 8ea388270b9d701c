//! Options that several commands share, parsed into types that cannot be wrong.

use std::time::Duration;

use clap::Args;
use leasehold::{Holder, Metadata, Steal, Ttl};
use serde_json::Value;

use crate::exit::Failure;
use crate::store;

/// Where the locks are, and how to talk about them.
#[derive(Args, Debug)]
pub(crate) struct Common {
    // The variable is read where the store is chosen, to tell who chose it.
    #[arg(long, value_name = "URL", help_heading = "General")]
    #[arg(help = store::help(), long_help = store::long_help())]
    pub(crate) store: Option<String>,
    /// Data on stdout and messages on stderr as JSON, one object per line
    #[arg(long, help_heading = "General")]
    pub(crate) json: bool,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose", help_heading = "General")]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, help_heading = "General")]
    pub(crate) verbose: bool,
}

/// What lock to ask for, and for how long to try.
#[derive(Args, Debug)]
pub(crate) struct LockOptions {
    /// How long the lock lasts without renewal: how long others wait after a crash
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Ttl,
    /// Give up after this time; without it, wait for ever
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: the same as --wait 0s
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The name shown to others who want the lock
    ///
    /// By default the host and the command: host/report.sh. It should stay the same after a
    /// restart.
    #[arg(long, value_name = "NAME", value_parser = Holder::new)]
    pub(crate) holder: Option<Holder>,
    /// A note to store with the lock; may be repeated
    #[arg(long, value_name = "K=V", value_parser = pair)]
    pub(crate) meta: Vec<(String, String)>,
    /// Take the lock if its holder has the same name: we crashed and came back
    ///
    /// Give jobs that may run side by side a --holder each, or they take it from one another.
    #[arg(long)]
    pub(crate) steal_same_holder: bool,
    /// Take the lock if it has been held for longer than this: its holder is stuck
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) steal_after: Option<Duration>,
    /// The exit code when somebody else holds the lock
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::HELD)]
    pub(crate) conflict_exit_code: u8,
}

impl LockOptions {
    /// For how long to wait; `None` is for ever.
    pub(crate) fn wait_at_most(&self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }

    pub(crate) fn steal(&self) -> Steal {
        let steal = if self.steal_same_holder { Steal::NEVER.with_same_holder() } else { Steal::NEVER };
        self.steal_after.map_or(steal, |time| steal.with_held_longer_than(time))
    }

    /// # Errors
    ///
    /// The notes are too long.
    pub(crate) fn metadata(&self) -> Result<Metadata, Failure> {
        let notes = self.meta.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        Metadata::new(Value::Object(notes.collect())).map_err(|error| Failure::usage(&error))
    }
}

/// A duration as people write it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}, for example 500ms, 30s or 1h 30m"))?;
    if time > LONGEST { Err("longer than a hundred years".to_owned()) } else { Ok(time) }
}

/// Added to any moment it is still a moment.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A duration that is not zero.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("zero is too short".to_owned()) } else { Ok(time) })
}

/// A ttl as people write it.
pub(crate) fn ttl(text: &str) -> Result<Ttl, String> {
    Ttl::new(duration(text)?).map_err(|error| error.to_string())
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a note has the form NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("30").is_err() && duration("").is_err() && duration("-1s").is_err());
    }

    #[test]
    fn a_ttl_is_whole_milliseconds_above_zero() {
        assert_eq!(ttl("250ms").map(Ttl::as_millis), Ok(250));
        assert!(ttl("0s").is_err() && ttl("10us").is_err() && ttl("11years").is_err());
    }

    #[test]
    fn notes_are_split_at_the_first_equals_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }
}
