//! What `run` and `acquire` tell about their work, as text or as JSON. The JSON is documented in
//! `docs/cli.md`.

use std::time::Duration;

use leasehold::stores::Migrated;
use leasehold::{Contention, Fence, Holder, Key, Timestamp};
use serde_json::{Value, json};

use crate::acquire::Wanted;
use crate::escape::{escape, json_line};
use crate::exit::Failure;
use crate::signals::Signal;
use crate::text;

/// How much somebody wants to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Also with `-q`.
    Problem,
    /// By default.
    Notice,
    /// With `-v`, and always in JSON.
    Detail,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) level: Level,
    name: &'static str,
    text: String,
    hint: Option<String>,
    fields: Value,
}

impl Event {
    fn new(level: Level, name: &'static str, text: impl Into<String>, fields: Value) -> Self {
        Self { level, name, text: text.into(), hint: None, fields }
    }

    /// For people: a line, and perhaps one with a hint. Nothing in them can make the terminal do
    /// anything.
    pub(crate) fn text(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("hint: {}\n", escape(hint)));
        format!("leasehold: {}\n{}", escape(&self.text), hint.unwrap_or_default())
    }

    /// For programs: one line.
    pub(crate) fn json(&self) -> String {
        let mut line = json!({ "event": self.name, "at_ms": Timestamp::now() });
        if let (Some(line), Some(fields)) = (line.as_object_mut(), self.fields.as_object()) {
            line.extend(fields.clone());
        }
        json_line(&line)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Somebody else has the lock; `seen` is how long ago that was.
pub(crate) fn waiting(key: &Key, held: Option<&(Contention, Duration)>, waited: Duration) -> Event {
    let (name, waited_text) = (key.as_str(), text::duration(waited));
    let Some((contention, seen)) = held else {
        let text = format!("waiting for '{name}': the store has not told who holds it; waited {waited_text}");
        return Event::new(Level::Notice, "waiting", text, json!({ "key": key, "waited_ms": millis(waited) }));
    };
    let held_for = contention.held_for() + *seen;
    let free_in = contention.free_in().saturating_sub(*seen);
    let holder = text::holder(contention.holder.as_ref());
    let since = text::moment(contention.acquired_at);
    let text = format!(
        "waiting for '{name}': held by {holder} since {since} ({}); waited {waited_text}",
        text::duration(held_for)
    );
    let fields = json!({
        "key": key,
        "holder": contention.holder,
        "acquired_at_ms": contention.acquired_at,
        "expires_at_ms": contention.expires_at,
        "held_for_ms": millis(held_for),
        "free_in_ms": millis(free_in),
        "waited_ms": millis(waited),
    });
    Event::new(Level::Notice, "waiting", text, fields)
}

/// Something that may not be as the user believes.
pub(crate) fn warning(text: &str) -> Event {
    Event::new(Level::Notice, "warning", format!("warning: {text}"), json!({ "message": text }))
}

/// The store cannot be reached, or has no room for us.
pub(crate) fn no_store(key: &Key, failure: &Failure, waited: Duration) -> Event {
    let text = format!("waiting for '{}': {}; waited {}", key.as_str(), failure.message, text::duration(waited));
    let fields = json!({ "key": key, "message": failure.message, "waited_ms": millis(waited) });
    Event::new(Level::Notice, "waiting", text, fields)
}

/// The lock is ours. Whoever was told that we wait is told that we do no longer.
pub(crate) fn acquired(wanted: &Wanted<'_>, fence: Fence, announced: bool) -> Event {
    let level = if announced { Level::Notice } else { Level::Detail };
    let (key, waited, store) = (wanted.key, wanted.since.elapsed(), wanted.store);
    let (name, waited_text) = (key.as_str(), text::duration(waited));
    let text = format!("got '{name}' after {waited_text}, fence {fence}, in {}", store.description());
    let fields = json!({
        "key": key,
        "fence": fence,
        "holder": wanted.holder,
        "waited_ms": millis(waited),
        "store": store.public_url(),
        "store_from": store.origin().to_string(),
    });
    Event::new(level, "acquired", text, fields)
}

/// `--proceed-unlocked`, and it came to that.
pub(crate) fn unlocked(key: &Key, why: &str) -> Event {
    let text = format!("running WITHOUT the lock '{}': {why}", key.as_str());
    Event::new(Level::Problem, "unlocked", text, json!({ "key": key, "message": why }))
}

/// The command runs.
pub(crate) fn started(pid: i32) -> Event {
    Event::new(Level::Detail, "started", format!("started process {pid}"), json!({ "pid": pid }))
}

/// We got a signal.
pub(crate) fn signal(signal: Signal) -> Event {
    let text = format!("got {signal}");
    Event::new(Level::Detail, "signal", text, json!({ "signal": signal.number(), "name": signal.name() }))
}

/// The command is being stopped because the lock is lost or about to be.
pub(crate) fn lost(reason: &str, message: &str, grace: Duration) -> Event {
    let text = format!("lost the lock, stopping the command within {}: {message}", text::duration(grace));
    Event::new(Level::Problem, "lost", text, json!({ "reason": reason, "message": message, "grace_ms": millis(grace) }))
}

/// The grace is over.
pub(crate) fn killed() -> Event {
    Event::new(Level::Notice, "killed", "the command did not stop in time and is killed", json!({}))
}

/// Some process could not be ended.
pub(crate) fn survived(count: usize) -> Event {
    let text = format!("{count} processes of the command cannot be killed and may still run");
    Event::new(Level::Problem, "survived", text, json!({ "count": count }))
}

/// The command ended, with a code or by a signal.
pub(crate) fn exited(code: Option<i32>, signal: Option<i32>) -> Event {
    let text = match (code, signal) {
        (Some(code), _) => format!("the command ended with {code}"),
        (None, Some(signal)) => format!("the command ended by signal {signal}"),
        (None, None) => "the command ended".to_owned(),
    };
    Event::new(Level::Detail, "exited", text, json!({ "code": code, "signal": signal }))
}

/// The command ended, but not all that it had started.
pub(crate) fn left_running(count: usize) -> Event {
    let text = format!("the command ended, but left {count} running in the background, without the lock from now on");
    Event::new(Level::Notice, "left_running", text, json!({ "count": count }))
}

/// The terminal stopped the command, and us with it.
pub(crate) fn suspended() -> Event {
    let text = "suspended; the lock is not renewed meanwhile";
    Event::new(Level::Notice, "suspended", text, json!({}))
}

/// `--at-least` is not over yet.
pub(crate) fn keeping(time: Duration) -> Event {
    let text = format!("keeping the lock for another {}", text::duration(time));
    Event::new(Level::Detail, "keeping", text, json!({ "for_ms": millis(time) }))
}

/// The lock is free again.
pub(crate) fn released() -> Event {
    Event::new(Level::Detail, "released", "released the lock", json!({}))
}

/// Nobody holds any lock that was asked for.
pub(crate) fn no_locks() -> Event {
    Event::new(Level::Notice, "no_locks", "no locks", json!({}))
}

/// What `migrate` came to.
pub(crate) fn migrated(outcome: Migrated) -> Event {
    let (what, text) = match outcome {
        Migrated::Changed => ("changed", "the store has now all it needs"),
        Migrated::UpToDate => ("up_to_date", "nothing to do: the store had all it needs"),
        _ => ("not_needed", "nothing to do: this store makes what it needs by itself"),
    };
    Event::new(Level::Notice, "migrated", text, json!({ "outcome": what }))
}

/// A lock was ended by force.
pub(crate) fn force_released(key: &Key, holder: Option<&Holder>) -> Event {
    let text = format!("released '{}', which {} held", key.as_str(), text::holder(holder));
    Event::new(Level::Notice, "force_released", text, json!({ "key": key, "holder": holder }))
}

/// The lock could not be given back, and stays until its lease runs out.
pub(crate) fn release_failed(failure: &Failure) -> Event {
    let text = format!("cannot release the lock, it ends with its ttl: {}", failure.message);
    Event::new(Level::Problem, "release_failed", text, json!({ "message": failure.message }))
}

/// Why we end.
pub(crate) fn error(failure: &Failure, verbose: bool) -> Event {
    let mut text = failure.message.clone();
    if verbose {
        failure.causes.iter().for_each(|cause| text.push_str(&format!(": {cause}")));
    }
    let fields = json!({
        "message": failure.message,
        "hint": failure.hint,
        "causes": failure.causes,
        "exit_code": failure.code,
    });
    Event { hint: failure.hint.clone(), ..Event::new(failure.level, "error", text, fields) }
}
