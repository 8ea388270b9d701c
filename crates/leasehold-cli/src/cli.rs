//! The command line.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    acquire, bench, completions, doctor, extend, force_release, init, ls, man, markdown, migrate, release, run, show,
    watch,
};
use crate::exit;

/// Distributed locks for commands: only one runs at a time
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = exit::help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The arguments, which begin with the name of the program.
    ///
    /// # Errors
    ///
    /// They make no sense, or ask for help.
    pub(crate) fn read(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut cli = Self::try_parse_from(arguments)?;
        if let Command::Run(options) = &mut cli.command {
            options.task.settle(arguments)?;
        }
        Ok(cli)
    }
}

/// The commands that are for users.
pub(crate) fn public() -> clap::Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect::<Vec<_>>();
    let about = all.get_about().cloned().unwrap_or_default();
    let after = all.get_after_help().cloned().unwrap_or_default();
    clap::Command::new("leasehold").about(about).after_help(after).version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Options),
    Acquire(acquire::Options),
    Extend(extend::Options),
    Release(release::Options),
    Ls(ls::Options),
    Show(show::Options),
    Watch(watch::Options),
    ForceRelease(force_release::Options),
    Doctor(doctor::Options),
    Bench(bench::Options),
    Init(init::Options),
    Migrate(migrate::Options),
    Completions(completions::Options),
    Man(man::Options),
    Markdown(markdown::Options),
}
