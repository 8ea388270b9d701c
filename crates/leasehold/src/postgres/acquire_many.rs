use std::collections::HashSet;
use std::time::Instant;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::error::ServerSaid;
use super::many::{Call, is_refusal};
use super::operations::Operations;
use super::record::unreadable;
use super::{Postgres, answers, class, number, record};
use crate::backend::{Acquire, AcquireRequest, Mode, all};
use crate::{Error, Operation};

/// The most locks that one statement asks for. The server has little room for the advisory locks of
/// transactions, of which everybody has one for each key until it commits.
pub(super) const MOST: usize = 32;

/// The requests of one statement, in the form that its function takes.
#[derive(Default)]
struct Asked<'a> {
    /// Their places among those that came together.
    places: Vec<usize>,
    keys: Vec<String>,
    ids: Vec<&'a str>,
    ttls: Vec<i64>,
    user_keys: Vec<&'a str>,
    counters: Vec<String>,
    details: Vec<String>,
    lines: Vec<&'static str>,
}

impl Postgres {
    /// Asks for many locks at once, each of which is granted or refused by itself, as if they had
    /// been asked for one after the other. Up to 32 of them go in one statement and one
    /// transaction.
    ///
    /// That statement waits for nobody. What it cannot decide at once is asked for alone: a lock
    /// that is shared, has a line or may be stolen, or about which somebody else is just deciding.
    /// An error for one is none for the others, unless the connection was lost.
    ///
    /// Not cancel-safe: whoever drops the future has to release every lock that it asked for. For
    /// those who test what a batch decides: acquires that come together go together by themselves.
    #[doc(hidden)]
    pub async fn acquire_together(&self, requests: &[AcquireRequest]) -> Vec<Result<Acquire, Error>> {
        let operations = &self.operations;
        let mut answers = Vec::with_capacity(requests.len());
        for requests in requests.chunks(MOST) {
            let begun = Instant::now();
            let decided = operations.acquire_without_waiting(requests).await;
            let others = decided.iter().any(Option::is_some);
            let calls = requests.iter().zip(decided).map(|(request, answer)| -> Call<'_, Acquire> {
                match answer {
                    Some(answer) => Box::pin(std::future::ready(answer)),
                    None => {
                        let call = operations.acquire_one(request);
                        Box::pin(operations.alone(Operation::Acquire, begun, others, call))
                    }
                }
            });
            answers.extend(all(calls.collect()).await);
        }
        answers
    }
}

impl Operations {
    /// Whether a request is one of those that can be asked for with others.
    pub(super) fn goes_with_others(&self, request: &AcquireRequest) -> bool {
        request.mode == Mode::Exclusive && !request.steal.is_possible() && self.functions.have_added()
    }

    /// What one statement that waits for nobody makes of up to [`MOST`] requests. None: nothing was
    /// done about that one, and it has to be asked for alone.
    pub(super) async fn acquire_without_waiting(
        &self,
        requests: &[AcquireRequest],
    ) -> Vec<Option<Result<Acquire, Error>>> {
        let mut decided: Vec<_> = requests.iter().map(|_| None).collect();
        if let Err(error) = self.functions.trust(&self.connections).await {
            return requests.iter().map(|_| Some(Err(error.clone()))).collect();
        }
        let asked = self.select(requests);
        if asked.places.len() < 2 {
            return decided;
        }
        match self.ask_for_many(&asked, requests).await {
            Ok(answers) => answers.into_iter().for_each(|(place, answer)| decided[place] = Some(answer)),
            // Nothing was done. One of the locks may be the reason.
            Err(error) if is_refusal(&error) => {
                if is_not_callable(&error) {
                    self.functions.lack_added();
                }
            }
            Err(error) => asked.places.iter().for_each(|place| decided[*place] = Some(Err(error.clone()))),
        }
        decided
    }

    /// Those that one statement can be asked about.
    fn select<'a>(&self, requests: &'a [AcquireRequest]) -> Asked<'a> {
        let mut asked = Asked::default();
        let (mut keys, mut ids) = (HashSet::new(), HashSet::new());
        for (place, request) in requests.iter().enumerate() {
            let (id, user_key) = (request.lock_id.expose(), request.key.as_str());
            // Only those count that are asked about: one that stays behind goes after them.
            if !self.goes_with_others(request) || keys.contains(user_key) || ids.contains(id) {
                continue;
            }
            // What is wrong with a key is said to whoever asks for it alone.
            let Ok(key) = self.names.lock(&request.key) else { continue };
            let Ok(counter) = self.names.fence(&key) else { continue };
            keys.insert(user_key);
            ids.insert(id);
            asked.places.push(place);
            asked.keys.push(key);
            asked.ids.push(id);
            asked.ttls.push(number(request.ttl.as_millis()));
            asked.user_keys.push(user_key);
            asked.counters.push(counter);
            asked.details.push(record::details(request).to_string());
            asked.lines.push(class::line(request.line).0);
        }
        asked
    }

    async fn ask_for_many(
        &self,
        asked: &Asked<'_>,
        requests: &[AcquireRequest],
    ) -> Result<Vec<(usize, Result<Acquire, Error>)>, Error> {
        let parameters: [Parameter<'_>; 7] = [
            (&asked.keys, Type::TEXT_ARRAY),
            (&asked.ids, Type::TEXT_ARRAY),
            (&asked.ttls, Type::INT8_ARRAY),
            (&asked.user_keys, Type::TEXT_ARRAY),
            (&asked.counters, Type::TEXT_ARRAY),
            (&asked.details, Type::TEXT_ARRAY),
            (&asked.lines, Type::TEXT_ARRAY),
        ];
        let rows = self.query(Operation::Acquire, &self.statements.acquire_many, &parameters).await?;
        let answers = rows.iter().map(|row| {
            let wanted: i32 = row.try_get("wanted").map_err(unreadable)?;
            let place = usize::try_from(wanted - 1).ok().and_then(|number| asked.places.get(number));
            let place = *place.ok_or_else(answers::unexpected)?;
            let answer = answers::acquire(row, &requests[place]);
            Ok((place, answer.map_err(|error| error.during(Operation::Acquire))))
        });
        answers.collect::<Result<_, Error>>().map_err(|error| error.during(Operation::Acquire))
    }
}

/// Whether the function is not there any more, or not for us. Those for one lock tell what to do.
fn is_not_callable(error: &Error) -> bool {
    let states = [SqlState::UNDEFINED_FUNCTION, SqlState::INSUFFICIENT_PRIVILEGE];
    ServerSaid::of(error).is_some_and(|said| states.contains(&said.state))
}
