use std::collections::HashSet;
use std::pin::Pin;
use std::time::Instant;

use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::error::ServerSaid;
use super::extend::Extended;
use super::operations::Operations;
use super::record::unreadable;
use super::{answers, number};
use crate::backend::{Extend, Release, all};
use crate::remote::driver_error::not_connected_in_time;
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// The part of a call's time that one lock may keep the answers for others waiting.
const PATIENCE_PARTS: u32 = 10;

pub(super) type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl Operations {
    /// Extends many locks in one statement, and those that it did not get by themselves.
    pub(super) async fn extend_together(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let begun = Instant::now();
        let answers = match locks {
            [] | [_] => Vec::new(),
            _ => match self.ask_to_extend_many(locks).await {
                Ok(answers) => answers,
                Err(error) if is_refusal(&error) => Vec::new(),
                Err(error) => return vec![Err(error); locks.len()],
            },
        };
        let took = begun.elapsed();
        let calls = locks.iter().enumerate().map(|(index, (id, ttl))| -> Call<'_, Extend> {
            let answer = answers.get(index);
            if let Some(extend) = answer.and_then(|answer| answer.after(took)) {
                return Box::pin(std::future::ready(Ok(extend)));
            }
            // An answer that came too late to count.
            let late = answer.is_some_and(|answer| answer.until.is_some());
            Box::pin(self.alone(Operation::Extend, begun, !answers.is_empty(), async move {
                if late { self.extend_guarded(id, *ttl, true).await } else { self.extend_one(id, *ttl).await }
            }))
        });
        all(calls.collect()).await
    }

    /// Releases many locks in one statement, and those that it did not get by themselves.
    pub(super) async fn release_together(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let begun = Instant::now();
        let done = match ids {
            [] | [_] => ids.iter().map(|_| None).collect(),
            _ => self.release_without_waiting(ids).await,
        };
        let others = done.iter().any(Option::is_some);
        let calls = ids.iter().zip(done).map(|(id, answer)| -> Call<'_, Release> {
            match answer {
                Some(answer) => Box::pin(std::future::ready(answer)),
                None => Box::pin(self.alone(Operation::Release, begun, others, self.release_one(id))),
            }
        });
        all(calls.collect()).await
    }

    /// What one statement that waits for nobody makes of many releases. None: nothing was done
    /// about that one, and it has to be released alone.
    pub(super) async fn release_without_waiting(&self, ids: &[LockId]) -> Vec<Option<Result<Release, Error>>> {
        // Of those that ask for the same, the first: the others find what it leaves.
        let mut seen = HashSet::new();
        let places: Vec<_> = (0..ids.len()).filter(|place| seen.insert(ids[*place].expose())).collect();
        let asked: Vec<_> = places.iter().map(|place| ids[*place].expose()).collect();
        let mut done: Vec<_> = ids.iter().map(|_| None).collect();
        match self.ask_to_release_many(&asked).await {
            Ok(answers) => places.iter().zip(answers).for_each(|(place, answer)| {
                done[*place] = answer.map(|answer| Ok(answers::release(answer)));
            }),
            Err(error) if is_refusal(&error) => {}
            Err(error) => places.iter().for_each(|place| done[*place] = Some(Err(error.clone()))),
        }
        self.sweep.perhaps(&self.connections, &self.tables);
        done
    }

    async fn ask_to_extend_many(&self, locks: &[(LockId, Ttl)]) -> Result<Vec<Extended>, Error> {
        let ids: Vec<_> = locks.iter().map(|(id, _)| id.expose()).collect();
        let ttls: Vec<_> = locks.iter().map(|(_, ttl)| number(ttl.as_millis())).collect();
        let parameters: [Parameter<'_>; 2] = [(&ids, Type::TEXT_ARRAY), (&ttls, Type::INT8_ARRAY)];
        let row = self.query_one(Operation::Extend, &self.statements.extend_many, &parameters).await?;
        let numbers = |column| row.try_get::<_, Vec<Option<i64>>>(column);
        let read = numbers(0).and_then(|untils| Ok((untils, numbers(1)?)));
        let (untils, lefts) = read.map_err(|error| unreadable(error).during(Operation::Extend))?;
        let answers = untils.into_iter().zip(lefts).map(|(until, left)| Extended { until, left }).collect();
        one_for_each(answers, locks.len(), Operation::Extend)
    }

    async fn ask_to_release_many(&self, ids: &[&str]) -> Result<Vec<Option<i32>>, Error> {
        let parameters: [Parameter<'_>; 1] = [(&ids, Type::TEXT_ARRAY)];
        let row = self.query_one(Operation::Release, &self.statements.release_many, &parameters).await?;
        let answers = row.try_get(0).map_err(|error| unreadable(error).during(Operation::Release))?;
        one_for_each(answers, ids.len(), Operation::Release)
    }

    /// A call for one lock, within the time of the call for all. Few of them go on at once: each
    /// may wait for somebody else, with a connection that the next call for many would need.
    ///
    /// With `others` that are answered already it gets little time: they wait for it.
    pub(super) async fn alone<T>(
        &self,
        operation: Operation,
        begun: Instant,
        others: bool,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let timeout = if others { self.connections.timeout / PATIENCE_PARTS } else { self.connections.timeout };
        let begun = if others { Instant::now() } else { begun };
        let deadline = tokio::time::Instant::from_std(begun + timeout);
        let Ok(Ok(_turn)) = tokio::time::timeout_at(deadline, self.lone_calls.acquire()).await else {
            return Err(not_connected_in_time(operation, timeout));
        };
        match tokio::time::timeout_at(deadline, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::timed_out(operation, timeout)),
        }
    }
}

/// Whether the server refused the statement, so that nothing was done. One of the locks may be the
/// reason. A session that cannot begin or has ended is no refusal: no other call would fare better.
pub(super) fn is_refusal(error: &Error) -> bool {
    ServerSaid::of(error).is_some_and(|said| said.refused)
}

fn one_for_each<T>(answers: Vec<T>, wanted: usize, operation: Operation) -> Result<Vec<T>, Error> {
    if answers.len() == wanted {
        return Ok(answers);
    }
    Err(Error::new(ErrorCode::Internal, "an unexpected answer of the server").during(operation).with_outcome_unknown())
}
