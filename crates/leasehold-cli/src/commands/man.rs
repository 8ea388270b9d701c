use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use super::examples::EXAMPLES;
use crate::cli;
use crate::exit::{self, Failure};

/// Write the manual pages into a directory
///
/// One for leasehold and one for each of its commands. For example: leasehold man
/// ~/.local/share/man/man1
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where to write them
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut all = cli::public().disable_help_subcommand(true);
    all.build();
    fs::create_dir_all(&options.directory).map_err(|error| cannot_write(&options.directory, &error))?;
    for command in all.get_subcommands().chain([&all]) {
        // Its name with that of leasehold, as `build` leaves it in the display name.
        let name = command.get_display_name().unwrap_or("leasehold").to_owned();
        let file = options.directory.join(format!("{name}.1"));
        let page = page(command.clone()).map_err(|error| Failure::output(&error))?;
        fs::write(&file, page).map_err(|error| cannot_write(&file, &error))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(exit::UNAVAILABLE, format!("cannot write {}: {error}", path.display()))
}

fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let name = command.get_name().to_owned();
    let has_commands = command.has_subcommands();
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend(exit_status().into_bytes());
    page.extend(examples(&name).into_bytes());
    if !has_commands {
        page.extend(b".SH \"SEE ALSO\"\n.BR leasehold (1)\n");
    }
    Ok(page)
}

fn exit_status() -> String {
    let code = |(code, meaning): &(&str, &str)| format!(".TP\n\\fB{}\\fR\n{}\n", roff(code), roff(meaning));
    format!(".SH \"EXIT STATUS\"\n{}", exit::TABLE.iter().map(code).collect::<String>())
}

fn examples(name: &str) -> String {
    let example = |(_, what, line): &(&str, &str, &str)| {
        format!(".PP\n{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", roff(what), roff(line))
    };
    let examples: String = EXAMPLES.iter().filter(|(command, ..)| *command == name).map(example).collect();
    if examples.is_empty() { examples } else { format!(".SH EXAMPLES\n{examples}") }
}

/// Text in which nothing is a request to the formatter.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}
