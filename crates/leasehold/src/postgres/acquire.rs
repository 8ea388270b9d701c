use tokio_postgres::types::Type;

use super::connections::Parameter;
use super::obstacle::Wanted;
use super::operations::Operations;
use super::{answers, class, number, record};
use crate::backend::{Acquire, AcquireAll, AcquireRequest, MOST_KEYS};
use crate::{Error, Operation};

impl Operations {
    pub(super) async fn acquire_one(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        self.functions.trust(&self.connections).await?;
        let key = self.names.lock(&request.key)?;
        let (counter, details) = (self.names.fence(&key)?, record::details(request).to_string());
        let ttl = number(request.ttl.as_millis());
        let same_holder = request.steal.same_holder().then(|| request.holder.as_str());
        let held_longer_than =
            request.steal.held_longer_than().map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let stuck_fence = request.steal.fence().map(String::from);
        let ((class, permits), (line, lease)) = (class::of(request.mode), class::line(request.line));
        let parameters: [Parameter<'_>; 13] = [
            (&key, Type::TEXT),
            (&request.lock_id.expose(), Type::TEXT),
            (&ttl, Type::INT8),
            (&request.key.as_str(), Type::TEXT),
            (&counter, Type::TEXT),
            (&details, Type::TEXT),
            (&same_holder, Type::TEXT),
            (&held_longer_than, Type::INT8),
            (&stuck_fence, Type::TEXT),
            (&class, Type::TEXT),
            (&permits, Type::INT4),
            (&line, Type::TEXT),
            (&lease, Type::INT8),
        ];
        let row = self.query_one(Operation::Acquire, &self.statements.acquire, &parameters);
        let row = self.explained(Wanted::Key(&key), row).await?;
        answers::acquire(&row, request).map_err(|error| error.during(Operation::Acquire))
    }

    pub(super) async fn acquire_all_or_none(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        if requests.is_empty() || requests.len() > MOST_KEYS {
            let error = Error::invalid(format!("between one and {MOST_KEYS} locks can be taken at once"));
            return Err(error.during(Operation::Acquire));
        }
        self.functions.trust(&self.connections).await?;
        let keys = requests.iter().map(|request| self.names.lock(&request.key)).collect::<Result<Vec<_>, _>>()?;
        let counters = keys.iter().map(|key| self.names.fence(key)).collect::<Result<Vec<_>, _>>()?;
        let of_each = |value: fn(&AcquireRequest) -> &str| requests.iter().map(value).collect::<Vec<_>>();
        let details: Vec<_> = requests.iter().map(|request| record::details(request).to_string()).collect();
        let ttls: Vec<_> = requests.iter().map(|request| number(request.ttl.as_millis())).collect();
        let permits: Vec<_> = requests.iter().map(|request| class::of(request.mode).1).collect();
        let parameters: [Parameter<'_>; 9] = [
            (&keys, Type::TEXT_ARRAY),
            (&of_each(|request| request.lock_id.expose()), Type::TEXT_ARRAY),
            (&ttls, Type::INT8_ARRAY),
            (&of_each(|request| request.key.as_str()), Type::TEXT_ARRAY),
            (&counters, Type::TEXT_ARRAY),
            (&details, Type::TEXT_ARRAY),
            (&of_each(|request| class::of(request.mode).0), Type::TEXT_ARRAY),
            (&permits, Type::INT4_ARRAY),
            (&of_each(|request| class::line(request.line).0), Type::TEXT_ARRAY),
        ];
        let row = self.query_one(Operation::Acquire, &self.statements.acquire_all, &parameters);
        // Whoever is in the way may be in that of any of them: the first stands for all.
        let row = self.explained(Wanted::Key(&keys[0]), row).await?;
        answers::acquire_all(&row, requests).map_err(|error| error.during(Operation::Acquire))
    }
}
