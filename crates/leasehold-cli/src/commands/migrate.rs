use clap::Args;

use crate::exit::{self, Failure};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::store::Store;
use crate::{event, output, question};

/// Make what the store needs, such as tables and functions in a database
///
/// Safe to run at any time, by many at once, and again after an upgrade. A store that needs nothing
/// is only reached. Says whether there was anything to do. Asks first, unless --yes is given, if it
/// would change tables that another program made, or if that program would not find them.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Print what it would run, for somebody else to run, and do nothing
    #[arg(long)]
    print: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let store = Store::choose(&options.common, reporter)?;
    if options.print {
        output::script(store.migration()?.as_deref().unwrap_or("-- this store needs nothing\n"))?;
        return Ok(0);
    }
    if !options.yes {
        for warning in store.migration_warnings().await? {
            if !question::can_ask() {
                return Err(Failure::new(exit::USAGE, warning).hint("add --yes to do it all the same"));
            }
            if !question::confirmed(reporter, &format!("leasehold: {warning}. Go on?")) {
                return Err(Failure::new(exit::NOTHING, "nothing was changed"));
            }
        }
    }
    reporter.report(&event::migrated(store.migrate().await?));
    Ok(0)
}
