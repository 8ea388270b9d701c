use std::pin::Pin;
use std::sync::Arc;

use redis::{RedisError, Value};

use super::client::Client;
use super::connection::Open;
use super::error::{server_error, translate};
use super::script::{self, Script};
use super::{decode_extend, decode_release, lifetime};
use crate::backend::{Extend, Release, all};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// One request of many that is sent by itself.
type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl Client {
    pub(super) async fn extend_together(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let ids: Vec<_> = locks.iter().map(|(id, _)| *id).collect();
        let lifetimes: Vec<_> = locks.iter().map(|(_, ttl)| lifetime(*ttl)).collect();
        let arguments = ids.iter().zip(&lifetimes).flat_map(|(id, (ttl, life))| [id.expose(), ttl, life]).collect();
        match self.by_ids(Operation::Extend, &script::EXTEND_MANY, &ids, arguments).await {
            Some(answers) => answers.into_iter().map(|answer| answer.map(decode_extend)).collect(),
            None => {
                let calls = locks.iter().map(|(id, ttl)| -> Call<'_, Extend> { Box::pin(self.extend_one(id, *ttl)) });
                all(calls.collect()).await
            }
        }
    }

    pub(super) async fn release_together(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        match self.release_at_once(ids).await {
            Some(answers) => answers,
            None => {
                let calls = ids.iter().map(|id| -> Call<'_, Release> { Box::pin(self.release_one(id)) });
                all(calls.collect()).await
            }
        }
    }

    /// Releases many locks in one request. None: nothing was done, and each has to be released
    /// alone.
    pub(super) async fn release_at_once(&self, ids: &[LockId]) -> Option<Vec<Result<Release, Error>>> {
        let held = self.names.held();
        let arguments = ids.iter().flat_map(|id| [id.expose(), &held]).collect();
        let answers = self.by_ids(Operation::Release, &script::RELEASE_MANY, ids, arguments).await?;
        Some(answers.into_iter().map(|answer| answer.map(decode_release)).collect())
    }

    /// Runs a script over the locks of many ids, which answers to each with a number.
    async fn by_ids(
        &self,
        operation: Operation,
        script: &Script,
        ids: &[LockId],
        arguments: Vec<&str>,
    ) -> Option<Vec<Result<i64, Error>>> {
        let indexes: Vec<_> = ids.iter().map(|id| self.names.index(id)).collect();
        let keys: Vec<_> = indexes.iter().map(String::as_str).collect();
        let answers = self.together(operation, script, &keys, &arguments, ids.len()).await?;
        let number = |answer| match answer {
            Value::Int(answer) => Ok(answer),
            _ => Err(strange(operation)),
        };
        Some(answers.into_iter().map(|answer| answer.and_then(number)).collect())
    }

    /// Runs a script that answers so many requests. None: nothing was done, and each has to be sent
    /// by itself.
    pub(super) async fn together(
        &self,
        operation: Operation,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
        requests: usize,
    ) -> Option<Vec<Result<Value, Error>>> {
        // A script for one is known to the server already.
        if requests < 2 {
            return None;
        }
        let asked = self.connection.current();
        match self.run::<Vec<Value>>(operation, script, keys, arguments).await {
            Ok(answers) if answers.len() == requests => {
                let answers = answers.into_iter().map(|answer| self.one_of_many(operation, answer, asked.as_ref()));
                Some(answers.collect())
            }
            Ok(_) => Some(vec![Err(strange(operation)); requests]),
            Err(error) if is_not_begun(&error) => None,
            Err(error) => Some(vec![Err(error); requests]),
        }
    }

    /// What went wrong is told as text that begins with a word in capital letters.
    fn one_of_many(&self, operation: Operation, answer: Value, asked: Option<&Arc<Open>>) -> Result<Value, Error> {
        match answer {
            Value::BulkString(text) if text.first().is_some_and(u8::is_ascii_uppercase) => {
                let error = server_error(&text);
                if self.server.is_wrong(&error) {
                    self.connection.try_other_host_than(asked);
                }
                Err(translate(error, true).during(operation))
            }
            answer => Ok(answer),
        }
    }
}

/// Whether the server did not even begin: while a cluster moves the locks they may be in two
/// places, and one of the names may be none that the user has a right on.
fn is_not_begun(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<RedisError>());
    matches!(source.and_then(RedisError::code), Some("ASK" | "TRYAGAIN" | "CROSSSLOT" | "NOPERM"))
}

fn strange(operation: Operation) -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server").during(operation).with_outcome_unknown()
}
