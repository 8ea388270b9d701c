use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use leasehold::{Holder, Locked, Locks};
use serde_json::{Value, json};

use crate::escape::escape;
use crate::exit::{self, Failure};
use crate::locks_view::{self, json_object, table, terminal_width};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::{event, output, store};

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Watch the locks come and go, until Ctrl-C
///
/// On a terminal the table is drawn anew each second. Elsewhere, and with --json, each change is a
/// line.
#[derive(Args, Debug)]
#[command(after_help = exit::help())]
pub(crate) struct Options {
    /// Only keys that start with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) async fn run(options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(exit::UNAVAILABLE, format!("cannot listen to signals: {error}")))?;
    let locks = store::open(&options.common, reporter).await?;
    tokio::select! {
        signal = signals.next() => Ok(exit::of_signal(signal.number())),
        result = watch(&locks, options, reporter) => result,
    }
}

async fn watch(locks: &Locks, options: &Options, reporter: &Reporter) -> Result<u8, Failure> {
    let mut known = BTreeMap::new();
    let mut failing = false;
    let mut first = true;
    loop {
        match locks_view::list(locks, &options.prefix).await {
            Ok(held) => {
                failing = false;
                match terminal_width() {
                    Some(columns) if !options.common.json => output::screen(&table(&held, Some(columns)))?,
                    _ => {
                        let changes = changes(&mut known, held);
                        if options.common.json {
                            output::json(changes.iter().map(object))?;
                        } else {
                            output::text(&changes.iter().map(line).collect::<String>())?;
                        }
                    }
                }
            }
            // A store that answers once is waited for when it fails later.
            Err(error) if first || !error.is_retryable() => return Err(error.into()),
            Err(error) if !failing => {
                failing = true;
                reporter.report(&event::error(&error.into(), reporter.verbose()));
            }
            Err(_) => {}
        }
        first = false;
        tokio::time::sleep(LOOK).await;
    }
}

/// A lock that was `freed` or is `held`.
type Change = (&'static str, Locked);

/// Each lock that was taken, given back, or taken anew since the last look.
fn changes(known: &mut BTreeMap<String, Locked>, held: Vec<Locked>) -> Vec<Change> {
    let now: BTreeMap<_, _> = held.into_iter().map(|locked| (locked.key.as_str().to_owned(), locked)).collect();
    let differ = |one: &BTreeMap<String, Locked>, other: &BTreeMap<String, Locked>, what| {
        let changed =
            |(key, locked): &(&String, &Locked)| other.get(*key).is_none_or(|it| it.info.fence != locked.info.fence);
        one.iter().filter(changed).map(|(_, locked)| (what, locked.clone())).collect::<Vec<Change>>()
    };
    let changes = [differ(known, &now, "freed"), differ(&now, known, "held")].concat();
    *known = now;
    changes
}

fn object((what, locked): &Change) -> Value {
    let mut object = json!({ "event": what });
    if let (Some(object), Some(fields)) = (object.as_object_mut(), json_object(locked).as_object()) {
        object.extend(fields.clone());
    }
    object
}

fn line((what, locked): &Change) -> String {
    let holder = locked.info.holder.as_ref().map_or("-", Holder::as_str);
    format!("{what:<6} {}  {}  {}\n", escape(locked.key.as_str()), escape(holder), locked.info.fence)
}
