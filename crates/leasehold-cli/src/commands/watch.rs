use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use leasehold::backend::{Event, Subscription};
use leasehold::{Fence, Holder, Key, Locks, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::known::{Change, Known, Seen};
use crate::escape::escape;
use crate::exit::{self, Failure};
use crate::locks_view::{self, Look, json_object, table, terminal_width};
use crate::options::Common;
use crate::reporter::Reporter;
use crate::store::Store;
use crate::{event, output, text};

/// The time between two looks. In between the store tells what it grants.
const LOOK: Duration = Duration::from_secs(1);

/// How many grants are looked up between two looks. Strangers may tell of some that never were: of
/// more than this only what was said is told.
const LOOK_UPS: u32 = 20;

/// How many of the last changes are shown below the table.
const RECENT: usize = 5;

/// Watch the locks come and go, until Ctrl-C
///
/// On a terminal the table is drawn anew each second, and below it the last changes. Elsewhere, and
/// with --json, each change is a line. The store tells of every lock that it grants, also of one
/// that is given back at once; where it may not be listened to, such a lock may not be seen. Makes
/// nothing.
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
    let locks = Store::find(&options.common, reporter)?.look().await?;
    Watch::new(&locks, options).run(reporter).await
}

struct Watch<'a> {
    locks: &'a Locks,
    options: &'a Options,
    /// What is held as far as we know.
    known: Known,
    recent: VecDeque<String>,
    /// How many grants may still be looked up.
    look_ups: u32,
}

impl<'a> Watch<'a> {
    fn new(locks: &'a Locks, options: &'a Options) -> Self {
        Self { locks, options, known: Known::default(), recent: VecDeque::new(), look_ups: 0 }
    }

    async fn run(mut self, reporter: &Reporter) -> Result<u8, Failure> {
        let mut failing = false;
        let mut first = true;
        let mut grants = None;
        loop {
            if grants.is_none() {
                // A store that cannot be listened to is looked at.
                grants = self.locks.grants().await.ok();
            }
            match locks_view::list(self.locks, &self.options.prefix).await {
                Ok(look) => {
                    failing = false;
                    self.looked(&look)?;
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
            self.look_ups = LOOK_UPS;
            self.listen(&mut grants, Instant::now() + LOOK).await?;
        }
    }

    /// Tells of locks as they are granted.
    async fn listen(&mut self, grants: &mut Option<Subscription>, until: Instant) -> Result<(), Failure> {
        loop {
            let event = tokio::select! {
                event = next(grants) => event,
                () = tokio::time::sleep_until(until) => return Ok(()),
            };
            match event {
                Some(Event::Granted { key, fence, holder }) => self.granted(key, fence, holder).await?,
                // Another look shows what was missed.
                Some(Event::Missed) => return Ok(()),
                Some(_) => {}
                None => *grants = None,
            }
        }
    }

    async fn granted(&mut self, key: Key, fence: Fence, holder: Option<Holder>) -> Result<(), Failure> {
        if !key.as_str().starts_with(&self.options.prefix) || self.known.contains(&key, fence) {
            return Ok(());
        }
        let holders = match self.look_ups.checked_sub(1) {
            Some(left) => {
                self.look_ups = left;
                self.locks.holders(&key).await.ok()
            }
            None => None,
        };
        let changes = self.known.granted(key, fence, holder, holders.as_deref());
        self.tell(&changes, Timestamp::now())
    }

    fn looked(&mut self, look: &Look) -> Result<(), Failure> {
        let changes = self.known.looked(&look.held);
        self.tell(&changes, look.now)?;
        if let Some(columns) = terminal_width().filter(|_| !self.options.common.json) {
            let locks = if look.held.is_empty() { "no locks\n".to_owned() } else { table(look, Some(columns)) };
            let recent: String = self.recent.iter().map(|line| text::cut(line, columns) + "\n").collect();
            output::screen(&format!("{locks}\n{recent}"))?;
        }
        Ok(())
    }

    fn tell(&mut self, changes: &[Change], now: Timestamp) -> Result<(), Failure> {
        if self.options.common.json {
            return output::json(changes.iter().map(|change| object(change, now)));
        }
        let lines = changes.iter().map(line);
        if terminal_width().is_none() {
            return output::text(&lines.map(|line| line + "\n").collect::<String>());
        }
        self.recent.extend(lines);
        self.recent.drain(..self.recent.len().saturating_sub(RECENT));
        Ok(())
    }
}

async fn next(grants: &mut Option<Subscription>) -> Option<Event> {
    match grants {
        Some(grants) => grants.next().await,
        None => std::future::pending().await,
    }
}

fn object((what, seen): &Change, now: Timestamp) -> Value {
    let lock = match seen {
        Seen::Lock(locked) => json_object(locked, now),
        Seen::Grant { key, fence, holder } => json!({ "key": key, "fence": fence, "holder": holder }),
    };
    let mut object = json!({ "event": what });
    if let (Some(object), Some(fields)) = (object.as_object_mut(), lock.as_object()) {
        object.extend(fields.clone());
    }
    object
}

fn line((what, seen): &Change) -> String {
    let holder = seen.holder().map_or("-", Holder::as_str);
    format!("{what:<6} {}  {}  {}", escape(seen.key().as_str()), escape(holder), seen.fence())
}
