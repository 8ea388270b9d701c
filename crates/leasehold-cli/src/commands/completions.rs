use clap::Args;
use clap_complete::Shell;

use crate::cli;
use crate::exit::Failure;
use crate::output;

/// Completes the command of `run`, which stands behind the two dashes, in a way that the generated
/// scripts do not know.
const BASH: &str = include_str!("completions.bash");
const FISH: &str = include_str!("completions.fish");

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
    clap_complete::generate(options.shell, &mut cli::public(), "leasehold", &mut script);
    let more = match options.shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        _ => "",
    };
    output::script(&(String::from_utf8_lossy(&script) + more))
}
