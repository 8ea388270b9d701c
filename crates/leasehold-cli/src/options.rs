//! Options that several commands share, parsed into types that cannot be wrong.

use std::num::NonZeroU16;
use std::time::Duration;

use clap::Args;
use leasehold::{Error, Holder, Metadata, Mode, Steal, Ttl};
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
    /// Share the lock with others who want to share it: for readers
    ///
    /// Those who want it for themselves, the writers, are kept out, and keep out the readers. All
    /// of them stand in one line, so that nobody waits for ever.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take one of N permits: at most N hold the lock at a time
    ///
    /// Each has a slot of its own, from 0, which is free again with the permit. N is stored nowhere
    /// and may be another one from now on.
    #[arg(long, value_name = "N", value_parser = permits)]
    pub(crate) permits: Option<NonZeroU16>,
    /// Pass those who wait for the lock, and do not stand in line
    ///
    /// Without it, whoever waits stands in line, and gets the lock in turn.
    #[arg(long)]
    pub(crate) unfair: bool,
    /// Stand in line also on Firestore, where a line is slow and costs reads and writes
    ///
    /// There only those with --shared or --permits stand in line without it.
    #[arg(long, conflicts_with = "unfair")]
    pub(crate) fair: bool,
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
    /// The exit code when somebody else holds the lock, or is before us in line
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::HELD)]
    pub(crate) conflict_exit_code: u8,
}

impl LockOptions {
    /// For how long to wait; `None` is for ever.
    pub(crate) fn wait_at_most(&self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }

    /// How to hold the lock.
    pub(crate) fn mode(&self) -> Mode {
        match self.permits {
            Some(of) => Mode::Permit { of },
            None if self.shared => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    pub(crate) fn steal(&self) -> Steal {
        let steal = if self.steal_same_holder { Steal::NEVER.with_same_holder() } else { Steal::NEVER };
        self.steal_after.map_or(steal, |time| steal.with_held_longer_than(time))
    }

    /// The notes of the user, and before them as many of `ours` as there is room for. Of two with
    /// one name that of the user counts.
    ///
    /// # Errors
    ///
    /// The notes of the user are too long.
    pub(crate) fn metadata(&self, ours: &[(&str, Value)]) -> Result<Metadata, Failure> {
        let notes = self.meta.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        let notes: Vec<_> = notes.collect();
        let with = |count: usize| {
            let ours = ours[..count].iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            Metadata::new(Value::Object(ours.chain(notes.clone()).collect()))
        };
        let fits = (1..=ours.len()).rev().find_map(|count| with(count).ok());
        fits.map_or_else(|| with(0), Ok).map_err(|error| Failure::usage(&error))
    }
}

/// A duration as people write it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    leasehold::parse_duration(text).map_err(|error| with_hint(&error))
}

/// The error with its hint where clap has its tips.
fn with_hint(error: &Error) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}\n  tip: {hint}"))
}

/// A ttl beyond this has to be written in hours: others wait that long after a crash.
const LONG_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration that is not zero.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("zero is too short".to_owned()) } else { Ok(time) })
}

/// A ttl as people write it.
pub(crate) fn ttl(text: &str) -> Result<Ttl, String> {
    let ttl = Ttl::new(duration(text)?).map_err(|error| with_hint(&error))?;
    let in_hours = text.strip_suffix('h').is_some_and(|number| number.parse::<u64>().is_ok());
    if ttl.as_duration() > LONG_TTL && !in_hours {
        let hours = ttl.as_millis().div_ceil(3_600_000);
        return Err(format!(
            "longer than a day, which others wait after a crash\n  tip: write {hours}h if you mean it"
        ));
    }
    Ok(ttl)
}

/// A number from 1 to `most`.
pub(crate) fn at_most(text: &str, most: u16) -> Result<u16, String> {
    let number: u64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match u16::try_from(number) {
        Ok(0) => Err("zero is too few\n  tip: 1 is the least".to_owned()),
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("too many\n  tip: {most} are the most")),
    }
}

/// A number of permits.
fn permits(text: &str) -> Result<NonZeroU16, String> {
    let number: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    let permits = u16::try_from(number).map_err(|_| format!("too many\n  tip: {} are the most", u16::MAX))?;
    NonZeroU16::new(permits).ok_or_else(|| "nobody could have one of zero permits".to_owned())
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
        assert_eq!(duration("30"), Err("the time has no unit\n  tip: 30s? 30m?".to_owned()));
    }

    #[test]
    fn a_ttl_is_whole_milliseconds_above_zero() {
        assert_eq!(ttl("250ms").map(Ttl::as_millis), Ok(250));
        assert!(ttl("0s").is_err() && ttl("10us").is_err() && ttl("87601h").is_err());
    }

    #[test]
    fn a_ttl_of_more_than_a_day_is_written_in_hours() {
        assert_eq!(ttl("1d").map(Ttl::as_millis), Ok(86_400_000));
        assert_eq!(ttl("48h").map(Ttl::as_millis), Ok(172_800_000));
        for long in ["2d", "1d 1m", "2880m", "25.5h"] {
            assert!(ttl(long).is_err_and(|error| error.contains("h if you mean it")), "{long}");
        }
    }

    #[test]
    fn notes_are_split_at_the_first_equals_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }
}
