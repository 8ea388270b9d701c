//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{
    acquire, completions, doctor, extend, force_release, init, ls, man, markdown, migrate, release, run, show, watch,
};
use crate::exit;

/// Distributed locks for commands: only one runs at a time
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = exit::help(), disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
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
    Init(init::Options),
    Migrate(migrate::Options),
    Completions(completions::Options),
    Man(man::Options),
    Markdown(markdown::Options),
}
