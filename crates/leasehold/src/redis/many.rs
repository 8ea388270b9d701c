use redis::{RedisError, Value};

use super::error::{server_error, translate};
use super::script::{self, Script};
use super::{Redis, decode_extend, decode_release, lifetime};
use crate::backend::{Backend, Extend, Release, all};
use crate::{Error, ErrorCode, LockId, Operation, Ttl};

/// What one script says to many locks: the answer of each, or that each has to be asked for by
/// itself.
enum Together {
    Answers(Vec<Result<i64, Error>>),
    Apart,
}

impl Redis {
    pub(super) async fn extend_together(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        let ids: Vec<_> = locks.iter().map(|(id, _)| id).collect();
        let lifetimes: Vec<_> = locks.iter().map(|(_, ttl)| lifetime(*ttl)).collect();
        let arguments = ids.iter().zip(&lifetimes).flat_map(|(id, (ttl, life))| [id.expose(), ttl, life]).collect();
        match self.together(Operation::Extend, &script::EXTEND_MANY, &ids, arguments).await {
            Together::Answers(answers) => answers.into_iter().map(|answer| answer.map(decode_extend)).collect(),
            Together::Apart => all(locks.iter().map(|(id, ttl)| self.extend(id, *ttl)).collect()).await,
        }
    }

    pub(super) async fn release_together(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        let ids: Vec<_> = ids.iter().collect();
        let held = self.names.held();
        let arguments = ids.iter().flat_map(|id| [id.expose(), &held]).collect();
        match self.together(Operation::Release, &script::RELEASE_MANY, &ids, arguments).await {
            Together::Answers(answers) => answers.into_iter().map(|answer| answer.map(decode_release)).collect(),
            Together::Apart => all(ids.iter().map(|id| self.release(id)).collect()).await,
        }
    }

    async fn together(&self, operation: Operation, script: &Script, ids: &[&LockId], arguments: Vec<&str>) -> Together {
        // A script for one is known to the server already.
        if ids.len() < 2 {
            return Together::Apart;
        }
        let indexes: Vec<_> = ids.iter().map(|id| self.names.index(id)).collect();
        let keys: Vec<_> = indexes.iter().map(String::as_str).collect();
        match self.run::<Vec<Value>>(operation, script, &keys, &arguments).await {
            Ok(answers) if answers.len() == ids.len() => {
                let answers = answers.into_iter().map(|answer| self.one_of_many(operation, answer));
                Together::Answers(answers.collect())
            }
            Ok(_) => Together::Answers(vec![Err(strange(operation)); ids.len()]),
            // While a cluster moves the locks they may be in two places.
            Err(error) if moving(&error) => Together::Apart,
            Err(error) => Together::Answers(vec![Err(error); ids.len()]),
        }
    }

    fn one_of_many(&self, operation: Operation, answer: Value) -> Result<i64, Error> {
        match answer {
            Value::Int(answer) => Ok(answer),
            Value::BulkString(text) => {
                let error = server_error(&text);
                if self.server.is_wrong(&error)
                    && let Ok(connection) = self.connection()
                {
                    connection.try_other_host();
                }
                Err(translate(error, true).during(operation))
            }
            _ => Err(strange(operation)),
        }
    }
}

/// Whether the server did not even begin, because not all of the locks are there.
fn moving(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<RedisError>());
    matches!(source.and_then(RedisError::code), Some("ASK" | "TRYAGAIN" | "CROSSSLOT"))
}

fn strange(operation: Operation) -> Error {
    Error::new(ErrorCode::Internal, "an unexpected answer of the server").during(operation).with_outcome_unknown()
}
