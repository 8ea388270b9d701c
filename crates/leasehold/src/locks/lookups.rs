use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::core::Core;
use super::hold::Hold;
use crate::backend::LookupBy;
use crate::sync::lock;
use crate::{Error, LockId, Loss, Operation};

/// How many lookups may be on their way at once. They use connections that renewals need.
const LANES: usize = 2;

/// The pause of a lane whose lookup failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The lookups of holds without a heartbeat after the store's clock was set. (One with a heartbeat
/// is renewed, which tells the same.) None is sent while a renewal waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Lookups(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<LockId, Arc<Hold>>,
    lanes: usize,
}

impl Core {
    /// Has a hold looked up. Meanwhile the keeper looks at it when its time is over.
    pub(super) fn await_lookup(&self, hold: Arc<Hold>) {
        self.look_again_at(&hold, hold.deadline());
        lock(&self.lookups.0).waiting.insert(hold.lock_id, hold);
    }

    /// Starts to look up what waits, unless enough is on its way. Only for the keeper's runtime.
    pub(super) fn start_looking_up(self: &Arc<Self>) {
        if self.urgency().is_some() {
            return;
        }
        let mut queue = lock(&self.lookups.0);
        for _ in 0..LANES.saturating_sub(queue.lanes).min(queue.waiting.len()) {
            queue.lanes += 1;
            tokio::spawn(Lane { core: self.clone() }.run());
        }
    }

    /// The hold to be looked up next. One that is not doubted any more was extended meanwhile.
    fn next_lookup(&self) -> Option<Arc<Hold>> {
        while self.urgency().is_none() {
            let (_, hold) = lock(&self.lookups.0).waiting.pop_first()?;
            if hold.loss().is_none() && hold.is_doubted() {
                return Some(hold);
            }
        }
        None
    }

    /// Asks the store whether a hold is still there, and until when.
    async fn look_up(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        let sent = self.now();
        let lookup = self.backend.lookup(LookupBy::Id(&hold.lock_id));
        match self.within(self.call_timeout, Operation::Lookup, lookup).await? {
            Some(record) => {
                hold.looked_up(sent, self.store_clock.earliest(record.expires_at));
                self.reschedule(hold);
            }
            None if hold.looked_up(sent, None) => self.lose(hold, Loss::Gone),
            None => self.reschedule(hold),
        }
        Ok(())
    }
}

/// Sends lookups, one after the other, until none waits.
struct Lane {
    core: Arc<Core>,
}

impl Lane {
    async fn run(self) {
        while let Some(hold) = self.core.next_lookup() {
            if let Err(error) = self.core.look_up(&hold).await {
                tracing::debug!(key = %hold.key.hash_id(), %error, "a lock could not be looked up");
                self.core.sleep(PAUSE).await;
                self.core.reschedule(&hold);
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        lock(&self.core.lookups.0).lanes -= 1;
    }
}
