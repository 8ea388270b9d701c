//! How locks are asked for, one and several.

use redis::Value;

use super::client::Client;
use super::names::Names;
use super::record::{self, Form, Found};
use super::{LARGEST, lifetime, script};
use crate::backend::{Acquire, AcquireAll, AcquireRequest, Contention, Grant, Line, MOST_KEYS};
use crate::{Error, ErrorCode, Fence, Operation, Timestamp};

impl Client {
    pub(super) async fn acquire_one(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let asked = Asked::new(&self.names, request)?;
        let (held, granted) = (self.names.held(), self.names.granted());
        let [id, life, key, rest, way] = asked.arguments(request);
        let arguments = [&*held, &granted, id, life, key, rest, way];
        let answer: Value = self.run(Operation::Acquire, &script::ACQUIRE, &asked.keys(), &arguments).await?;
        decode(&answer, request).map_err(|error| error.during(Operation::Acquire))
    }

    /// Asks for many locks at once, each for itself. None: nothing was done about that one, and it
    /// has to be asked for alone.
    pub(super) async fn acquire_together(&self, requests: &[AcquireRequest]) -> Vec<Option<Result<Acquire, Error>>> {
        let asked: Vec<_> = requests.iter().map(|request| Asked::new(&self.names, request).ok()).collect();
        let (held, granted) = (self.names.held(), self.names.granted());
        let (mut keys, mut arguments) = (Vec::new(), vec![&*held, &granted]);
        for (request, asked) in requests.iter().zip(&asked) {
            // What is wrong with a key is said to whoever asks for it alone.
            if let Some(asked) = asked {
                keys.extend(asked.keys());
                arguments.extend(asked.arguments(request));
            }
        }
        let sent = keys.len() / 3;
        let answers = self.together(Operation::Acquire, &script::ACQUIRE_MANY, &keys, &arguments, sent).await;
        let mut answers = answers.into_iter().flatten();
        let answered = |(request, asked): (&AcquireRequest, &Option<Asked>)| {
            asked.as_ref()?;
            match answers.next()? {
                Ok(Value::Int(script::APART)) => None,
                Ok(answer) => Some(decode(&answer, request).map_err(|error| error.during(Operation::Acquire))),
                Err(error) => Some(Err(error)),
            }
        };
        requests.iter().zip(&asked).map(answered).collect()
    }

    pub(super) async fn acquire_several(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        if requests.is_empty() {
            return Ok(AcquireAll::Granted(Vec::new()));
        }
        check(requests)?;
        let names = &self.names;
        let (mut keys, mut arguments) = (Vec::new(), vec![names.granted()]);
        for request in requests {
            let lock = names.lock(&request.key)?;
            let fence = names.fence(&lock)?;
            keys.extend([lock, fence, names.index(&request.lock_id)]);
            let (_, life) = lifetime(request.ttl);
            let (key, rest) = record::parts(request);
            let (mode, limit) = record::mode_and_limit(request.mode);
            let line = if request.line == Line::Heed { HEED } else { IGNORE };
            let id = request.lock_id.expose().to_owned();
            arguments.extend([id, life, key, rest, mode.to_owned(), limit, line.to_owned()]);
        }
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let answer: Value = self.run(Operation::Acquire, &script::ACQUIRE_ALL, &keys, &arguments).await?;
        decode_several(&answer, requests).map_err(|error| error.during(Operation::Acquire))
    }
}

/// What cannot be asked for at once is refused here: the script would grant one of two and lose the
/// other.
fn check(requests: &[AcquireRequest]) -> Result<(), Error> {
    let joins = |request: &AcquireRequest| matches!(request.line, Line::Join { .. });
    let again = |(number, request): (usize, &AcquireRequest)| {
        requests[..number].iter().any(|other| other.key == request.key || other.lock_id == request.lock_id)
    };
    if requests.len() > MOST_KEYS
        || requests.iter().any(|request| joins(request) || request.steal.is_possible())
        || requests.iter().enumerate().any(again)
    {
        let message = "several locks at once are few, of different keys and ids, and neither join a line nor steal";
        return Err(Error::invalid(message).during(Operation::Acquire));
    }
    Ok(())
}

/// What a request does about the line, as scripts know it.
const IGNORE: &str = "ignore";
const HEED: &str = "heed";

/// A request as the scripts have it: names, and arguments that each costs the server as much as a
/// comparison of many, so that they are few.
struct Asked {
    lock: String,
    fence: String,
    index: String,
    life: String,
    key: String,
    rest: String,
    way: String,
}

impl Asked {
    fn new(names: &Names, request: &AcquireRequest) -> Result<Self, Error> {
        let lock = names.lock(&request.key)?;
        let (fence, index) = (names.fence(&lock)?, names.index(&request.lock_id));
        let (_, life) = lifetime(request.ttl);
        let (key, rest) = record::parts(request);
        Ok(Self { lock, fence, index, life, key, rest, way: way(request) })
    }

    fn keys(&self) -> [&str; 3] {
        [&self.lock, &self.fence, &self.index]
    }

    fn arguments<'a>(&'a self, request: &'a AcquireRequest) -> [&'a str; 5] {
        [request.lock_id.expose(), &self.life, &self.key, &self.rest, &self.way]
    }
}

/// How a lock is asked for: see acquire.lua.
fn way(request: &AcquireRequest) -> String {
    let (mode, limit) = record::mode_and_limit(request.mode);
    let mut way = match request.line {
        Line::Ignore => format!("{mode} {limit} {IGNORE} -"),
        Line::Heed => format!("{mode} {limit} {HEED} -"),
        Line::Join { lease } => format!("{mode} {limit} {} {}", lease.as_millis(), Names::turn_of(&request.lock_id)),
    };
    let steal = request.steal;
    if steal.is_possible() {
        let age = steal.held_longer_than().map(|time| u64::try_from(time.as_millis()).unwrap_or(LARGEST).min(LARGEST));
        let age = age.map(|age| age.to_string()).unwrap_or_default();
        let stuck = steal.fence().map(String::from).unwrap_or_default();
        let same_holder = if steal.same_holder() { request.holder.as_str() } else { "" };
        // No name has a line break in it.
        way.push_str(&format!("\n{age}\n{stuck}\n{same_holder}"));
    }
    way
}

/// What the script of acquire answered: a new grant, a record that stands, or what decide.lua says.
fn decode(answer: &Value, request: &AcquireRequest) -> Result<Acquire, Error> {
    let parts = match answer {
        Value::BulkString(text) => return plain_grant(text, request).map(Acquire::Granted),
        Value::Array(parts) => parts,
        _ => return Err(strange()),
    };
    match &parts[..] {
        [Value::Int(1), fence, acquired_at, rest @ ..] => {
            grant(request, fence, acquired_at, rest).map(Acquire::Granted)
        }
        [Value::Int(0), now, Value::BulkString(raw)] => {
            let found = Found::parse(Form::Record, raw)?;
            if found.stored.has_id(&request.lock_id) {
                return Ok(Acquire::Granted(found.into_record()?.grant()));
            }
            Ok(Acquire::Held(found.stored.contention(time(now)?)))
        }
        [Value::Int(2), rest @ .., place] => {
            let place = match place {
                Value::Int(place) => u32::try_from(*place).ok(),
                _ => return Err(strange()),
            };
            Ok(Acquire::Held(obstacle(rest)?.with_place(place)))
        }
        [Value::Int(3), Value::BulkString(raw)] => {
            Ok(Acquire::Granted(Found::parse(Form::Grant, raw)?.into_record()?.grant()))
        }
        _ => Err(strange()),
    }
}

/// What the script of acquire_all answered.
fn decode_several(answer: &Value, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
    let Value::Array(parts) = answer else { return Err(strange()) };
    match &parts[..] {
        [Value::Int(1), fence, acquired_at, rest @ ..] if rest.len() == requests.len() => {
            let grants = requests.iter().zip(rest).map(|(request, rest)| match rest {
                Value::Array(rest) => grant(request, fence, acquired_at, rest),
                _ => Err(strange()),
            });
            grants.collect::<Result<_, _>>().map(AcquireAll::Granted)
        }
        [Value::Int(2), which, Value::Array(rest)] => {
            let which = usize::try_from(number(which)?).map_err(|_| strange())?;
            Ok(AcquireAll::Held { which, contention: obstacle(rest.get(1..).unwrap_or_default())? })
        }
        [Value::Int(3), rest @ ..] if rest.len() == 2 * requests.len() => {
            let grants = rest.chunks_exact(2).map(|pair| {
                let [Value::BulkString(form), Value::BulkString(raw)] = pair else { return Err(strange()) };
                let form = Form::of(form).ok_or_else(strange)?;
                Ok(Found::parse(form, raw)?.into_record()?.grant())
            });
            grants.collect::<Result<_, _>>().map(AcquireAll::Granted)
        }
        _ => Err(strange()),
    }
}

/// A new grant of a lock that one alone holds: its fence, the time, and its expiry.
fn plain_grant(text: &[u8], request: &AcquireRequest) -> Result<Grant, Error> {
    let text = std::str::from_utf8(text).map_err(|_| strange())?;
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().map_err(|_| strange()));
    let mut next = || numbers.next().unwrap_or_else(|| Err(strange()));
    let (fence, acquired_at, expires_at) = (Fence::new(next()?)?, next()?, next()?);
    Ok(Grant::new(request.lock_id, fence, Timestamp::from_millis(acquired_at), Timestamp::from_millis(expires_at)))
}

/// A new grant, of which `rest` is its expiry and, unless it is plain, its slot or a negative
/// number.
fn grant(request: &AcquireRequest, fence: &Value, acquired_at: &Value, rest: &[Value]) -> Result<Grant, Error> {
    let (expires_at, slot) = match rest {
        [expires_at] => (expires_at, None),
        [expires_at, Value::Int(slot)] => (expires_at, u16::try_from(*slot).ok()),
        _ => return Err(strange()),
    };
    Ok(Grant::new(request.lock_id, Fence::new(number(fence)?)?, time(acquired_at)?, time(expires_at)?).with_slot(slot))
}

/// Who is in the way: the time, what it is, the same as JSON, when it ends, how many hold the lock.
fn obstacle(parts: &[Value]) -> Result<Contention, Error> {
    let [now, Value::BulkString(form), Value::BulkString(raw), expires_at, holders] = parts else {
        return Err(strange());
    };
    let form = Form::of(form).ok_or_else(strange)?;
    let contention = record::contention(form, raw, time(now)?)?;
    let holders = u32::try_from(number(holders)?).unwrap_or(u32::MAX);
    Ok(Contention { expires_at: time(expires_at)?, ..contention.with_holders(holders) })
}

fn time(value: &Value) -> Result<Timestamp, Error> {
    number(value).map(Timestamp::from_millis)
}

fn number(value: &Value) -> Result<u64, Error> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| strange()),
        _ => Err(strange()),
    }
}

fn strange() -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server").with_outcome_unknown()
}
