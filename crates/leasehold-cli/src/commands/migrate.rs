use clap::Args;
use leasehold::Locks;

use crate::exit::{self, Failure};
use crate::locks_view::print;
use crate::options::Common;
use crate::store::Store;

/// Make what the store needs: tables and functions in a PostgreSQL database
///
/// Safe to run at any time, by many at once, and again after an upgrade. Stores other than PostgreSQL need nothing.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Print the SQL for somebody else to run, and do nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options) -> Result<u8, Failure> {
    let store = Store::choose(&options.common)?;
    if options.print {
        print(Locks::migration(store.url())?.as_deref().unwrap_or("-- this store needs nothing\n"))?;
    } else {
        Locks::migrate(store.url()).await?;
    }
    Ok(0)
}
