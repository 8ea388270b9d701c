//! How locks are asked for, one and several.

use redis::Value;

use super::names::Names;
use super::record::{self, Form, Found};
use super::{LARGEST, Redis, lifetime, script};
use crate::backend::{Acquire, AcquireAll, AcquireRequest, Contention, Grant, Line, MOST_KEYS};
use crate::remote::notification::granted_to;
use crate::{Error, ErrorCode, Fence, Operation, Timestamp};

impl Redis {
    pub(super) async fn acquire_one(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        let names = &self.names;
        let lock = names.lock(&request.key)?;
        let (fence, index) = (names.fence(&lock)?, names.index(&request.lock_id));
        let (key, rest) = record::parts(request);
        let steal = request.steal;
        let same_holder = if steal.same_holder() { request.holder.as_str() } else { "" };
        let held_longer_than = steal.held_longer_than().map(|time| {
            let millis = u64::try_from(time.as_millis()).unwrap_or(LARGEST);
            millis.min(LARGEST).to_string()
        });
        let stuck_fence = steal.fence().map(String::from);
        let (ttl, life) = lifetime(request.ttl);
        let (mode, limit) = record::mode_and_limit(request.mode);
        // In one, because the server takes its time over each argument.
        let way = match request.line {
            Line::Ignore => format!("{mode} {limit} {IGNORE} -"),
            Line::Heed => format!("{mode} {limit} {HEED} -"),
            Line::Join { lease } => {
                format!("{mode} {limit} {} {}", lease.as_millis(), Names::turn_of(&request.lock_id))
            }
        };
        let arguments = [
            request.lock_id.expose(),
            &ttl,
            &life,
            &key,
            &rest,
            &names.taken(),
            same_holder,
            held_longer_than.as_deref().unwrap_or_default(),
            stuck_fence.as_deref().unwrap_or_default(),
            &names.granted(),
            &granted_to(Some(&request.holder), &request.key),
            elsewhere(names),
            &names.held(),
            &way,
        ];
        let answer: Value =
            self.run(Operation::Acquire, &script::ACQUIRE, &[&lock, &fence, &index], &arguments).await?;
        decode(&answer, request).map_err(|error| error.during(Operation::Acquire))
    }

    pub(super) async fn acquire_several(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        if requests.is_empty() {
            return Ok(AcquireAll::Granted(Vec::new()));
        }
        check(requests)?;
        let names = &self.names;
        let (mut keys, mut arguments) = (Vec::new(), vec![names.granted(), elsewhere(names).into()]);
        for request in requests {
            let lock = names.lock(&request.key)?;
            let fence = names.fence(&lock)?;
            keys.extend([lock, fence, names.index(&request.lock_id)]);
            let (ttl, life) = lifetime(request.ttl);
            let (key, rest) = record::parts(request);
            let (mode, limit) = record::mode_and_limit(request.mode);
            let line = if request.line == Line::Heed { HEED } else { IGNORE };
            let told = granted_to(Some(&request.holder), &request.key);
            let id = request.lock_id.expose().to_owned();
            arguments.extend([id, ttl, life, key, rest, mode.to_owned(), limit, line.to_owned(), told]);
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

/// Whether somebody may listen to another node than the one that has the locks.
fn elsewhere(names: &Names) -> &'static str {
    if names.may_be_in_cluster() { "1" } else { "" }
}

/// What the script of acquire answered: a new grant, a record that stands, or what decide.lua says.
fn decode(answer: &Value, request: &AcquireRequest) -> Result<Acquire, Error> {
    let Value::Array(parts) = answer else { return Err(strange()) };
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
