//! The lock of `run` and the command under it, as they stand on the command line.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};
use leasehold::Key;

use crate::escape::escape;

/// What to lock, and what to run meanwhile.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) key: Key,
    pub(crate) words: Vec<OsString>,
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
    /// dash itself.
    #[arg(value_name = "CMD", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
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
        let dashes = arguments.iter().position(|argument| argument == "--");
        let behind = dashes.map_or(&[][..], |at| &arguments[at + 1..]);
        if behind.len() == self.words.len() + 1 {
            if self.words.first().is_none_or(|word| word != "--") {
                return Err(incomplete("there is no KEY before the two dashes", &["KEY", "--"], behind));
            }
            self.words.remove(0);
        }
        if self.words.is_empty() {
            let start = if self.key.as_str().starts_with('-') { &["--"][..] } else { &[] };
            let known = start.iter().copied().chain([self.key.as_str(), "--"]).collect::<Vec<_>>();
            return Err(incomplete("there is no command to run", &known, &["CMD".into()]));
        }
        Ok(())
    }
}

/// Something is missing; `leasehold run` and these words are what to type.
fn incomplete(message: &str, start: &[&str], rest: &[OsString]) -> clap::Error {
    let words = start.iter().map(OsStr::new).chain(rest.iter().map(OsString::as_os_str));
    let tip = escape(&format!("leasehold run {}", shell_line(words)));
    clap::Error::raw(ErrorKind::MissingRequiredArgument, format!("{message}\n  tip: {tip}\n"))
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
        let Typed { key, words } = Typed::from_arg_matches(matches)?;
        let key = key.ok_or_else(|| incomplete("what is to be locked, and what is to run?", &["KEY", "CMD"], &[]))?;
        Ok(Self { key, words })
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
