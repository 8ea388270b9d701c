use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::exit::{self, Failure};
use crate::output;

/// Print a manual page
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct Options {
    /// Of which command; of leasehold itself without
    command: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut all = Cli::command();
    all.build();
    let page = match &options.command {
        None => all,
        Some(name) => {
            let found = all.get_subcommands().find(|command| command.get_name() == name).cloned();
            found.ok_or_else(|| Failure::new(exit::USAGE, "there is no such command"))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(|error| Failure::output(&error))?;
    output::script(&String::from_utf8_lossy(&text))
}
