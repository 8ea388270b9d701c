//! What `run` and `acquire` tell about their work, as text or as JSON. The JSON is documented in
//! `docs/cli.md`.

use std::time::Duration;

use leasehold::stores::Migrated;
use leasehold::{Key, LockInfo, Timestamp};
use serde_json::{Value, json};

use crate::acquire::{Obstacle, Wanted};
use crate::escape::{escape, json_line};
use crate::exit::Failure;
use crate::granted::Granted;
use crate::mode;
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

/// Fields that say what the event is about: a key, and all of them if they are several.
fn about(keys: &[Key], key: Option<&Key>) -> Value {
    let mut fields = json!({ "key": key.or(keys.first()) });
    if keys.len() > 1 {
        fields["keys"] = json!(keys);
    }
    fields
}

/// Somebody else has one of the locks, and has been seen with it some time ago.
pub(crate) fn waiting(keys: &[Key], seen: Option<&(Obstacle, Duration)>, waited: Duration) -> Event {
    let (names, waited_text) = (text::quoted(keys), text::duration(waited));
    let Some((Obstacle { key, contention }, ago)) = seen else {
        let text = format!("waiting for {names}: the store has not told who holds it; waited {waited_text}");
        let mut fields = about(keys, None);
        fields["waited_ms"] = millis(waited).into();
        return Event::new(Level::Notice, "waiting", text, fields);
    };
    let held_for = contention.held_for() + *ago;
    let which = if keys.len() > 1 { format!("'{}' is ", key.as_str()) } else { String::new() };
    let place = contention.place.map(|place| format!("; {}", text::place(place))).unwrap_or_default();
    let obstacle = text::obstacle(contention, held_for);
    let text = format!("waiting for {names}: {which}{obstacle}{place}; waited {waited_text}");
    let mut fields = about(keys, Some(key));
    fields["holder"] = json!(contention.holder);
    fields["holders"] = contention.holders.into();
    fields["mode"] = mode::name(contention.mode).into();
    fields["place"] = json!(contention.place);
    fields["acquired_at_ms"] = json!(contention.acquired_at);
    fields["expires_at_ms"] = json!(contention.expires_at);
    fields["held_for_ms"] = millis(held_for).into();
    fields["free_in_ms"] = millis(contention.free_in().saturating_sub(*ago)).into();
    fields["waited_ms"] = millis(waited).into();
    Event::new(Level::Notice, "waiting", text, fields)
}

/// Something that may not be as the user believes.
pub(crate) fn warning(text: &str) -> Event {
    Event::new(Level::Notice, "warning", format!("warning: {text}"), json!({ "message": text }))
}

/// The store cannot be reached, or has no room for us.
pub(crate) fn no_store(keys: &[Key], failure: &Failure, waited: Duration) -> Event {
    let text = format!("waiting for {}: {}; waited {}", text::quoted(keys), failure.message, text::duration(waited));
    let mut fields = about(keys, None);
    fields["message"] = failure.message.as_str().into();
    fields["waited_ms"] = millis(waited).into();
    Event::new(Level::Notice, "waiting", text, fields)
}

/// The locks are ours. Whoever was told that we wait is told that we do no longer.
pub(crate) fn acquired(wanted: &Wanted<'_>, granted: &Granted, announced: bool) -> Event {
    let level = if announced { Level::Notice } else { Level::Detail };
    let (keys, waited, store, fence) = (wanted.keys, wanted.since.elapsed(), wanted.store, granted.fence());
    let (names, waited_text) = (text::quoted(keys), text::duration(waited));
    let slot = granted.slot().map(|slot| format!(", slot {slot}")).unwrap_or_default();
    let text = format!("got {names} after {waited_text}, fence {fence}{slot}, in {}", store.description());
    let mut fields = about(keys, None);
    mode::add_fields(&mut fields, wanted.options.mode(), granted.slot());
    fields["fence"] = json!(fence);
    fields["holder"] = json!(wanted.holder);
    fields["waited_ms"] = millis(waited).into();
    fields["store"] = store.public_url().into();
    fields["store_from"] = store.origin().to_string().into();
    Event::new(level, "acquired", text, fields)
}

/// `--proceed-unlocked`, and it came to that.
pub(crate) fn unlocked(keys: &[Key], why: &str) -> Event {
    let what = if keys.len() > 1 { "locks" } else { "lock" };
    let text = format!("running WITHOUT the {what} {}: {why}", text::quoted(keys));
    let mut fields = about(keys, None);
    fields["message"] = why.into();
    Event::new(Level::Problem, "unlocked", text, fields)
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

/// Locks of one key were ended by force.
pub(crate) fn force_released(key: &Key, ended: &[LockInfo]) -> Event {
    let holders = text::list(ended.iter().map(|info| text::holder(info.holder.as_ref()).to_owned()));
    let text = match ended.len() {
        1 => format!("released '{}', which {holders} held", key.as_str()),
        several => format!("released '{}', which {several} held: {holders}", key.as_str()),
    };
    Event::new(Level::Notice, "force_released", text, json!({ "key": key }))
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
