//! The locks of `run` and the command under them, as they stand on the command line.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};
use leasehold::Key;
use leasehold::backend::MOST_KEYS;

use crate::escape::escape;

const DASHES: &str = "--";

/// What to lock, and what to run meanwhile.
#[derive(Debug)]
pub(crate) struct Task {
    /// One at least, and none of them twice.
    pub(crate) keys: Vec<Key>,
    pub(crate) words: Vec<OsString>,
    all: bool,
}

/// The words as they were typed.
#[derive(Args, Debug)]
struct Typed {
    /// What to lock
    ///
    /// If it starts with a dash: leasehold run -- -key -- CMD
    #[arg(value_name = "KEY", value_parser = Key::new)]
    key: Option<Key>,
    /// The command to run
    ///
    /// All that follows belongs to it. It needs the two dashes before it only if it starts with a
    /// dash itself, or with --all.
    #[arg(value_name = "CMD", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
    /// Lock every KEY before the two dashes, all together or none: run --all KEY KEY -- CMD
    ///
    /// Nobody can wait for one of them while holding another, so there is no deadlock. One fence is
    /// for all. Losing one of the locks is losing all.
    #[arg(long)]
    all: bool,
}

impl Task {
    /// Looks where the two dashes are among the `arguments`. A key behind them was probably meant
    /// to be the command, of a script whose variable for the key is empty; unless there are two
    /// more dashes after it.
    ///
    /// # Errors
    ///
    /// There is no key, or no command; with what to type instead.
    pub(crate) fn settle(&mut self, arguments: &[OsString]) -> Result<(), clap::Error> {
        let dashes = arguments.iter().position(|argument| argument == DASHES);
        let behind = dashes.map_or(&[][..], |at| &arguments[at + 1..]);
        let is_key_behind = behind.len() == self.words.len() + 1;
        if is_key_behind && !self.has_key_behind() {
            return Err(incomplete("there is no KEY before the two dashes", &self.line(&["KEY", DASHES]), behind));
        }
        if is_key_behind || (self.all && behind.len() != self.words.len()) {
            self.take_keys(is_key_behind)?;
        }
        if self.words.is_empty() {
            let start = if self.keys[0].as_str().starts_with('-') { &[DASHES][..] } else { &[] };
            let keys = self.keys.iter().map(Key::as_str);
            let known: Vec<_> = start.iter().copied().chain(keys).chain([DASHES]).collect();
            return Err(incomplete("there is no command to run", &self.line(&known), &["CMD".into()]));
        }
        self.check_keys()
    }

    /// Whether what stands behind the two dashes are keys. Of several, only those need to stand
    /// there that start with a dash.
    fn has_key_behind(&self) -> bool {
        let mut words = self.words.iter();
        match self.all {
            true => self.keys[0].as_str().starts_with('-') && words.any(|word| word == DASHES),
            false => words.next().is_some_and(|word| word == DASHES),
        }
    }

    /// The words before the two dashes are keys.
    fn take_keys(&mut self, may_start_with_dash: bool) -> Result<(), clap::Error> {
        let Some(at) = self.words.iter().position(|word| word == DASHES) else {
            let keys = [self.keys[0].as_str()];
            let words = [&self.words[..], &[DASHES.into(), "CMD".into()]].concat();
            return Err(incomplete(
                "there are no two dashes between the keys and the command",
                &self.line(&keys),
                &words,
            ));
        };
        let words = self.words.split_off(at + 1);
        for word in std::mem::replace(&mut self.words, words).into_iter().take(at) {
            let text = word.to_str().ok_or_else(|| wrong("a key is not UTF-8", "write it in UTF-8"))?;
            if text.starts_with('-') && !may_start_with_dash {
                return Err(wrong(&format!("'{text}' stands between the keys"), "options stand before the keys"));
            }
            let key = Key::new(text);
            self.keys
                .push(key.map_err(|error| wrong(&format!("'{text}' is no key: {error}"), "see leasehold run --help"))?);
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), clap::Error> {
        let mut seen = HashSet::new();
        if let Some(key) = self.keys.iter().find(|key| !seen.insert(*key)) {
            return Err(wrong(&format!("the key '{}' is there twice", key.as_str()), "name each key once"));
        }
        if self.keys.len() > MOST_KEYS {
            let message = format!("{} keys are too many to be locked at once", self.keys.len());
            return Err(wrong(&message, &format!("{MOST_KEYS} are the most")));
        }
        Ok(())
    }

    /// What to type, with the option if it was there.
    fn line<'a>(&self, words: &[&'a str]) -> Vec<&'a str> {
        let option = self.all.then_some("--all");
        option.into_iter().chain(words.iter().copied()).collect()
    }
}

/// Something is missing; `leasehold run` and these words are what to type.
fn incomplete(message: &str, start: &[&str], rest: &[OsString]) -> clap::Error {
    let words = start.iter().map(OsStr::new).chain(rest.iter().map(OsString::as_os_str));
    let tip = escape(&format!("leasehold run {}", shell_line(words)));
    clap::Error::raw(ErrorKind::MissingRequiredArgument, format!("{message}\n  tip: {tip}\n"))
}

/// A key cannot be meant.
fn wrong(message: &str, tip: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{}\n  tip: {tip}\n", escape(message)))
}

/// Words as somebody can type them into a shell.
pub(crate) fn shell_line(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    let quoted = words.into_iter().map(|word| {
        let word = word.as_ref().to_string_lossy();
        if !word.is_empty() && word.chars().all(plain) {
            return word.into_owned();
        }
        format!("'{}'", word.replace('\'', "'\\''"))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

impl FromArgMatches for Task {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Typed { key, words, all } = Typed::from_arg_matches(matches)?;
        let key = key.ok_or_else(|| incomplete("what is to be locked, and what is to run?", &["KEY", "CMD"], &[]))?;
        Ok(Self { keys: vec![key], words, all })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Task {
    fn augment_args(command: Command) -> Command {
        Typed::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Typed::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell_if_they_have_to_be() {
        assert_eq!(shell_line(["echo", "a b", "it's", "", "x=1"]), "echo 'a b' 'it'\\''s' '' x=1");
    }
}
