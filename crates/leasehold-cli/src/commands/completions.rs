use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Failure;
use crate::output;

/// Print a completion script for a shell
///
/// For example: leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "leasehold", &mut script);
    output::script(&String::from_utf8_lossy(&script))
}
