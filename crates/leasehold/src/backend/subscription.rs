use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::{Fence, Key, Loss};

/// Something that happened in the store. A hint, not a fact: look before you act on it, except on
/// [`Taken`](Event::Taken), which names a lock that is dead for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The lock of the subscribed key was released, by its holder or by force.
    Freed,
    /// This lock was taken from its holder. It is named by its key and fence: whoever hears of it
    /// must not learn the lock id, which would let them act as the holder.
    Taken {
        /// The key of the dead lock.
        key: Key,
        /// The fence of the dead lock.
        fence: Fence,
        /// [`Loss::Stolen`] or [`Loss::ForceReleased`].
        how: Loss,
    },
    /// Events may have been missed: a connection was lost and made again, or the reader was too
    /// slow.
    Missed,
}

/// A stream of [`Event`]s. It ends when the store closes it; dropping it unsubscribes.
pub struct Subscription(Pin<Box<dyn Stream<Item = Event> + Send>>);

impl Subscription {
    /// A subscription that yields what `stream` yields.
    pub fn new(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// A subscription fed through the returned [`Publisher`], which keeps up to `capacity` events
    /// that were not read yet. `on_drop` runs when the subscription is dropped.
    pub fn channel(capacity: usize, on_drop: impl FnOnce() + Send + 'static) -> (Publisher, Self) {
        let (sender, receiver) = mpsc::channel(capacity);
        let missed = Arc::new(AtomicBool::new(false));
        let publisher = Publisher { sender, missed: missed.clone() };
        let on_drop = OnDrop(Some(Box::new(on_drop)));
        (publisher, Self::new(Channel { receiver, missed, _on_drop: on_drop }))
    }

    /// A subscription that never yields, for stores that cannot push.
    pub fn silent() -> Self {
        Self::new(Silent)
    }

    /// The next event; `None` when the store closed the subscription.
    ///
    /// Cancel-safe: no event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| self.0.as_mut().poll_next(cx)).await
    }
}

impl Stream for Subscription {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

/// The store's end of a [`Subscription`].
#[derive(Clone, Debug)]
pub struct Publisher {
    sender: mpsc::Sender<Event>,
    missed: Arc<AtomicBool>,
}

impl Publisher {
    /// Hands `event` to the subscriber. Never waits: when the subscriber is too far behind, it gets
    /// one [`Event::Missed`] for all it could not take.
    pub fn publish(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event) {
            self.missed.store(true, Ordering::Release);
            // The reader may have emptied the queue before the flag was set and sleep by now: wake
            // it.
            let _ = self.sender.try_send(Event::Missed);
        }
    }

    /// Whether the subscription was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

struct Channel {
    receiver: mpsc::Receiver<Event>,
    missed: Arc<AtomicBool>,
    _on_drop: OnDrop,
}

impl Stream for Channel {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.missed.swap(false, Ordering::AcqRel) {
            return Poll::Ready(Some(Event::Missed));
        }
        self.receiver.poll_recv(cx)
    }
}

struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

struct Silent;

impl Stream for Silent {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Event>> {
        Poll::Pending
    }
}
