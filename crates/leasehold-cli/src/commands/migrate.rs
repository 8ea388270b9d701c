use clap::Args;

use crate::exit::{self, Failure};
use crate::options::Common;
use crate::output;
use crate::store::Store;

/// Make what the store needs, such as tables and functions in a database
///
/// Safe to run at any time, by many at once, and again after an upgrade. A store that needs nothing
/// is only reached.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Print what it would run, for somebody else to run, and do nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options) -> Result<u8, Failure> {
    let store = Store::choose(&options.common)?;
    if options.print {
        output::script(store.migration()?.as_deref().unwrap_or("-- this store needs nothing\n"))?;
    } else {
        store.migrate().await?;
    }
    Ok(0)
}
