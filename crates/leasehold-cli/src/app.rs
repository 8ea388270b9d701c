//! From arguments to an exit code.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tokio::runtime::Runtime;

use crate::cli::{Cli, Command};
use crate::commands::{
    acquire, bench, completions, doctor, extend, force_release, init, ls, man, markdown, migrate, release, run, show,
    watch,
};
use crate::escape::escape;
use crate::exit::{self, End, Failure};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::task::shell_line;
use crate::{child, event, store, text};

/// The command with these arguments, of which the first is its name: does what they ask for, and
/// says how it went.
///
/// Call it first, on the main thread, with all the arguments of the process: `run` starts this
/// program a second time, to look after the command.
// Programs have just collected them, for this.
#[allow(clippy::needless_pass_by_value)]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if let Some(code) = child::shim::main(&arguments) {
        return ExitCode::from(code);
    }
    let json = wants_json(&arguments);
    match Cli::read(&arguments) {
        Ok(cli) => dispatch(cli.command).finish(),
        Err(error) if error.exit_code() == 0 => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        Err(error) => {
            Reporter::new(json, false, false).report(&event::error(&usage(error, &arguments), false));
            ExitCode::from(exit::USAGE)
        }
    }
}

/// Whether `--json` is among the arguments, also if they make no sense otherwise. No option takes
/// it for its value.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

fn dispatch(command: Command) -> End {
    match command {
        Command::Run(options) => reporting(&options.common, async |reporter| run::run(&options, reporter).await),
        Command::Acquire(options) => {
            reporting(&options.common, async |reporter| acquire::run(&options, reporter).await)
        }
        Command::Extend(options) => mortal(&options.common, async |reporter| extend::run(&options, reporter).await),
        Command::Release(options) => mortal(&options.common, async |reporter| release::run(&options, reporter).await),
        Command::Ls(options) => mortal(&options.common, async |reporter| ls::run(&options, reporter).await),
        Command::Show(options) => mortal(&options.common, async |reporter| show::run(&options, reporter).await),
        Command::Watch(options) => mortal(&options.common, async |reporter| watch::run(&options, reporter).await),
        Command::ForceRelease(options) => {
            mortal(&options.common, async |reporter| force_release::run(&options, reporter).await)
        }
        Command::Doctor(options) => mortal(&options.common, async |reporter| doctor::run(&options, reporter).await),
        Command::Bench(options) => reporting(&options.common, async |reporter| bench::run(&options, reporter).await),
        Command::Init(options) => mortal(&options.common, async |_| init::run(&options).await),
        Command::Migrate(options) => mortal(&options.common, async |reporter| migrate::run(&options, reporter).await),
        Command::Completions(options) => plain(completions::run(&options)),
        Command::Man(options) => plain(man::run(&options)),
        Command::Markdown(_) => plain(markdown::run()),
    }
}

/// Runs a command that talks to the store. On one thread, so that the thread which starts a child
/// lives as long as we.
fn reporting(common: &Common, work: impl AsyncFnOnce(&Reporter) -> Result<End, Failure>) -> End {
    let reporter = Reporter::new(common.json, common.quiet, common.verbose);
    let result = match runtime() {
        _ if !reporter.has_thread() => Err(Failure::new(exit::UNAVAILABLE, "cannot start a thread")
            .hint("raise the limit on processes (ulimit -u); unshare --pid also needs --fork")),
        Ok(runtime) => runtime.block_on(work(&reporter)),
        Err(error) => Err(Failure::new(exit::UNAVAILABLE, format!("cannot start: {error}"))),
    };
    store::tidy_up();
    result.unwrap_or_else(|failure| {
        let code = failure.code;
        if !failure.message.is_empty() {
            let failure = failure.at(reporter.store());
            reporter.report(&event::error(&failure, reporter.verbose()));
        }
        End::Code(code)
    })
}

/// As [`reporting`], for a command that has nothing to give back when a signal ends it. The system
/// ends it, but not if it is the first process of a container.
fn mortal(common: &Common, work: impl AsyncFnOnce(&Reporter) -> Result<u8, Failure>) -> End {
    reporting(common, async |reporter| {
        if !rustix::process::getpid().is_init() {
            return work(reporter).await.map(End::Code);
        }
        let mut signals = Signals::install().map_err(|error| Failure::signals(&error))?;
        tokio::select! {
            result = work(reporter) => result.map(End::Code),
            signal = signals.next_to_stop() => Ok(End::Signal(signal)),
        }
    })
}

fn runtime() -> io::Result<Runtime> {
    // It opens a pair for signals, and panics if it cannot.
    drop([UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?]);
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn plain(result: Result<(), Failure>) -> End {
    let Err(failure) = result else { return End::Code(0) };
    Reporter::new(false, false, false).report(&event::error(&failure, false));
    End::Code(failure.code)
}

/// clap's error on one line, with its tip as the hint.
fn usage(mut error: clap::Error, arguments: &[OsString]) -> Failure {
    let of_command = option_of_command(&error, arguments);
    escape_arguments(&mut error);
    let rendered = error.render().to_string();
    let about = |line: &&str| !line.trim().is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more");
    let (tips, message): (Vec<_>, Vec<_>) =
        rendered.lines().filter(about).partition(|line| line.trim_start().starts_with("tip:"));
    let message = text::one_line(&message.join(" "));
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "which command?",
        _ => message,
    };
    let hint = match (of_command, tips.first()) {
        (Some(hint), _) => hint,
        (None, Some(tip)) => text::one_line(tip.trim_start().trim_start_matches("tip:")),
        (None, None) => format!("see {} --help", command_of(&error)),
    };
    Failure::new(exit::USAGE, message).hint(hint)
}

/// What to type if an option that `run` does not know is the key, or one of the command. None if
/// there is one that looks like it, which was probably meant.
fn option_of_command(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    let at = arguments.iter().position(|argument| is_option(argument, unknown))?;
    let before = arguments.get(1..at).filter(|before| before.first().is_some_and(|first| first == "run"))?;
    let (before, after) = (before.iter().map(OsString::as_os_str), arguments[at..].iter().map(OsString::as_os_str));
    let (start, dashes) = (["leasehold".as_ref()].into_iter().chain(before), OsStr::new("--"));
    if at > 2 {
        return Some(format!("if it belongs to the command: {}", shell_line(start.chain([dashes]).chain(after))));
    }
    let command = after.clone().skip(1).skip_while(|word| *word == dashes);
    let line = shell_line(start.chain([dashes]).chain(after.take(1)).chain([dashes]).chain(command));
    Some(format!("if it is the key: {line}"))
}

/// Whether an argument is this option, also with a value or among others that are one letter each.
fn is_option(argument: &OsStr, option: &str) -> bool {
    let argument = argument.to_string_lossy();
    let letter = option.strip_prefix('-').filter(|letter| letter.chars().count() == 1 && *letter != "-");
    match letter {
        Some(letter) => argument.starts_with('-') && !argument.starts_with("--") && argument.contains(letter),
        None => argument == option || argument.strip_prefix(option).is_some_and(|rest| rest.starts_with('=')),
    }
}

/// Arguments are repeated in the error: none of them may pass for a line of it.
fn escape_arguments(error: &mut clap::Error) {
    let styled = |text: &StyledStr| StyledStr::from(escape(&text.to_string()));
    let escaped: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| {
            let value = match value {
                ContextValue::String(text) => ContextValue::String(escape(text)),
                ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(|text| escape(text)).collect()),
                ContextValue::StyledStr(text) => ContextValue::StyledStr(styled(text)),
                ContextValue::StyledStrs(texts) => ContextValue::StyledStrs(texts.iter().map(styled).collect()),
                _ => return None,
            };
            Some((kind, value))
        })
        .collect();
    for (kind, value) in escaped {
        error.insert(kind, value);
    }
}

/// The command whose usage was wrong: the start of the usage line.
fn command_of(error: &clap::Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage.split_whitespace().skip_while(|word| *word != "leasehold").skip(1);
    let command = words.take(1).filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    std::iter::once("leasehold").chain(command).collect::<Vec<_>>().join(" ")
}
