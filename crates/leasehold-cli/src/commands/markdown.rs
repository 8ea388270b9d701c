use std::fmt::Write;

use clap::{Args, Command, CommandFactory};

use crate::cli::Cli;
use crate::exit::{self, Failure};
use crate::output;

/// The parts of the reference that clap does not know.
const INTRODUCTION: &str = include_str!("reference.md");

/// Print the reference as Markdown
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct Options {}

pub(crate) fn run() -> Result<(), Failure> {
    output::script(&reference())
}

fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n");
    for (code, meaning) in exit::TABLE {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    let mut all = Cli::command().term_width(100);
    all.build();
    section(&mut page, &mut all, "leasehold");
    for command in all.get_subcommands_mut().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let name = format!("leasehold {}", command.get_name());
        section(&mut page, command, &name);
    }
    page
}

/// The whole help of a command, but for the exit codes that are all the same.
fn section(page: &mut String, command: &mut Command, name: &str) {
    let help = command.render_long_help().to_string();
    let help = help.lines().map(str::trim_end).take_while(|line| *line != "Exit codes:");
    let help = help.collect::<Vec<_>>().join("\n");
    let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
}
