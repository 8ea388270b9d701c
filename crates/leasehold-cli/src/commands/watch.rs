use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use leasehold::{Key, Locked, Locks};
use serde_json::json;

use crate::exit::{self, Failure};
use crate::locks_view::{self, json_object, print, table, terminal_width};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::{event, store, text};

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Clears the terminal and starts at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

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
    let locks = store::open(&options.common).await?;
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
                    Some(columns) if !options.common.json => {
                        print(&format!("{CLEAR}{}", table(&held, Some(columns))))?;
                    }
                    _ => print(&changes(&mut known, &held, options.common.json))?,
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

/// A line for each lock that was taken, given back, or taken anew since the last look.
fn changes(known: &mut BTreeMap<String, Locked>, held: &[Locked], json: bool) -> String {
    let now: BTreeMap<_, _> = held.iter().map(|locked| (locked.key.as_str().to_owned(), locked.clone())).collect();
    let mut lines = String::new();
    for (key, before) in known.iter() {
        if now.get(key).is_none_or(|locked| locked.info.fence != before.info.fence) {
            lines.push_str(&line("freed", before, json));
        }
    }
    for (key, locked) in &now {
        if known.get(key).is_none_or(|before| before.info.fence != locked.info.fence) {
            lines.push_str(&line("held", locked, json));
        }
    }
    *known = now;
    lines
}

fn line(what: &str, locked: &Locked, json: bool) -> String {
    if json {
        let mut object = json!({ "event": what });
        if let (Some(object), Some(fields)) = (object.as_object_mut(), json_object(locked).as_object()) {
            object.extend(fields.clone());
        }
        return format!("{object}\n");
    }
    let holder = locked.info.holder.as_ref().map_or("-", |holder| holder.as_str());
    format!("{what:<6} {}  {}  {}\n", text::safe(Key::as_str(&locked.key)), text::safe(holder), locked.info.fence)
}
