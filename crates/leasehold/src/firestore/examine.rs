use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1 as api;
use tonic::Code;

use api::run_aggregation_query_request::QueryType;
use api::structured_aggregation_query::aggregation::{Count, Operator};
use api::structured_aggregation_query::{Aggregation, QueryType as Counted};
use api::value::ValueType;

use super::clocks::NOTEWORTHY;
use super::connection::{Failure, Kind, Session};
use super::transaction::{Consistency, delete_existing};
use super::{Firestore, query};
use crate::backend::{Backend, Topic};
use crate::{Check, Error, ErrorCode, Key, LockId, Operation, TIME_TOLERANCE, Verdict};

/// The most fence counters that are counted: a thousand cost as much as one document that is read.
const MOST_COUNTED: i64 = 100_000;

impl Firestore {
    /// Looks for whatever could break locks or fences in this database.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation, if the server cannot be asked at all.
    pub async fn examine(&self) -> Result<Vec<Check>, Error> {
        let connection = self.connection()?;
        let session = || connection.session(Operation::Lookup);
        let mut checks = vec![Check::new("database", Verdict::Ok, "it exists, and lets us in")];
        checks.push(self.permissions(session()).await?);
        checks.push(self.index(session()).await?);
        checks.push(self.clock());
        checks.push(self.listening().await);
        checks.extend(self.count(session()).await.map(counted));
        Ok(checks)
    }

    /// Reads and writes nothing that exists.
    async fn permissions(&self, session: Session<'_>) -> Result<Check, Error> {
        let nobody = self.names.lock(LockId::random()?.expose());
        let read = session.get(&self.clocks, &[&nobody], Consistency::Latest).await;
        let written = session.write_nothing(&nobody).await;
        let missing = |failure: &Failure| matches!(failure, Failure::Status { status, .. } if status.code() == Code::PermissionDenied);
        let (read, written) = match (read.err(), written.err()) {
            (None, None) => return Ok(Check::new("permissions", Verdict::Ok, "documents may be read and written")),
            failures => failures,
        };
        let denied = [&read, &written].map(|failure| failure.as_ref().is_some_and(missing));
        let what = match denied {
            [true, true] => "the account may neither read nor write documents",
            [true, false] => "the account may not read documents",
            [false, true] => "the account may read documents, but not write them",
            [false, false] => {
                return read.or(written).map_or_else(|| Err(nothing()), |failure| Err(session.explain(failure)));
            }
        };
        let detail = format!("{what}: roles/datastore.user is missing");
        let check = Check::new("permissions", Verdict::Fail, detail);
        let account = "--member=serviceAccount:ACCOUNT --role=roles/datastore.user";
        let hint = format!("gcloud projects add-iam-policy-binding {} {account}", self.place.project);
        Ok(Check { hint: Some(hint), error: Some(ErrorCode::AuthFailed), ..check })
    }

    /// Whether locks are found by their ids.
    async fn index(&self, session: Session<'_>) -> Result<Check, Error> {
        let nobody = query::by_id(&self.names, &LockId::random()?);
        let found = session.query(&self.clocks, &self.names.root, nobody, Consistency::Latest).await;
        Ok(match found {
            Ok(_) => Check::new("index", Verdict::Ok, "locks are found by their ids"),
            Err(failure) => Check::failed("index", &session.explain(failure)),
        })
    }

    /// How far this host's clock is off, by the last answer.
    fn clock(&self) -> Check {
        let ahead = self.clocks.ahead();
        let apart = Duration::from_micros(ahead.unsigned_abs());
        let verdict = match apart {
            _ if apart > TIME_TOLERANCE => Verdict::Fail,
            _ if apart > NOTEWORTHY => Verdict::Warn,
            _ => Verdict::Ok,
        };
        let direction = if ahead < 0 { "behind" } else { "ahead of" };
        let detail = format!("this host is {} ms {direction} the server", apart.as_millis());
        let check = Check::new("clock", verdict, detail);
        if verdict == Verdict::Ok {
            return check;
        }
        let hint = "keep it in step, for example with chrony: beyond a second there are no locks";
        Check { hint: Some(hint.to_owned()), ..check }
    }

    /// Whether the server tells of what changes.
    async fn listening(&self) -> Check {
        let subscribed = async {
            let key = Key::new("leasehold-examine-wake-ups")?;
            self.subscribe(Topic::Freed(&key)).await
        };
        match subscribed.await {
            Ok(_) => Check::new("listening", Verdict::Ok, "the server tells of locks that are released"),
            Err(error) => Check { verdict: Verdict::Warn, ..Check::failed("listening", &error) },
        }
    }

    /// How many fence counters there are, up to a limit; none if that cannot be asked.
    async fn count(&self, session: Session<'_>) -> Option<i64> {
        let count = Aggregation {
            alias: "count".to_owned(),
            operator: Some(Operator::Count(Count { up_to: Some(MOST_COUNTED) })),
        };
        let counters = api::StructuredAggregationQuery {
            aggregations: vec![count],
            query_type: Some(Counted::StructuredQuery(query::counters(&self.names))),
        };
        let message = api::RunAggregationQueryRequest {
            parent: self.names.root.clone(),
            query_type: Some(QueryType::StructuredAggregationQuery(counters)),
            ..api::RunAggregationQueryRequest::default()
        };
        let answer = session.send(Kind::Read, message, async |mut client, message| {
            client.run_aggregation_query(message).await?.into_inner().message().await
        });
        let result = answer.await.ok()??.result?;
        match result.aggregate_fields.get("count")?.value_type {
            Some(ValueType::IntegerValue(number)) => Some(number),
            _ => None,
        }
    }
}

impl Session<'_> {
    /// Asks for a write that cannot be done, to see whether it would be allowed.
    async fn write_nothing(self, nobody: &str) -> Result<(), Failure> {
        match self.write(vec![delete_existing(nobody)]).await {
            Err(failure) if failure.is_conflict() => Ok(()),
            other => other,
        }
    }
}

fn counted(number: i64) -> Check {
    let more = if number >= MOST_COUNTED { "at least " } else { "" };
    let detail = format!("{more}{number} fence counters: every key that was ever locked has one for good");
    Check::new("counters", Verdict::Ok, detail)
}

fn nothing() -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server")
}
