//! What somebody in line listens to.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::Redis;
use super::names::Names;
use crate::backend::{Event, Subscription, Topic};
use crate::{Error, Key, LockId};

impl Redis {
    /// Two channels: the turn of the lock id, and the lock being freed. Only the second is used by
    /// programs that know of no line.
    pub(super) async fn subscribe_to_turn(&self, key: &Key, id: &LockId) -> Result<Subscription, Error> {
        let (listener, timeout) = (self.listener()?, self.server.timeout);
        let backlog = Topic::Turn(key, id).backlog();
        let (turn, freed) = tokio::try_join!(
            listener.subscribe(self.names.turn(id), backlog, timeout),
            listener.subscribe(Names::freed(&self.names.lock(key)?), backlog, timeout),
        )?;
        Ok(Subscription::new(Either(turn, freed)))
    }
}

/// The events of two subscriptions. It ends with either, so that its reader subscribes anew.
struct Either(Subscription, Subscription);

impl Stream for Either {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match Pin::new(&mut self.0).poll_next(cx) {
            Poll::Pending => Pin::new(&mut self.1).poll_next(cx),
            ready => ready,
        }
    }
}
