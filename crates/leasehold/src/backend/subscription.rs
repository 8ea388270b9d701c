use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::pace::Pace;
use crate::inbox::{Inbox, InboxSender, Received, inbox};
use crate::{Fence, Holder, Key, Loss};

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
    /// This lock was granted. It may be gone by now.
    Granted {
        /// The key of the lock.
        key: Key,
        /// The fence of the grant.
        fence: Fence,
        /// Who got it, if a name was left.
        holder: Option<Holder>,
    },
    /// Events may have been missed: a connection was lost and made again, or the reader was too
    /// slow.
    Missed,
}

/// A stream of [`Event`]s. It ends when the store closes it; dropping it unsubscribes.
///
/// [`Freed`](Event::Freed) and [`Missed`](Event::Missed) make the reader ask the store, and anybody
/// who may send messages there can bring them about. So they are yielded at a limited rate: some
/// dozens at once, then ten a second. Those that come in between are one.
pub struct Subscription {
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// An event that waits until it may be yielded. Nothing is read in the meantime.
    early: Option<Event>,
    pace: Pace,
}

impl Subscription {
    /// A subscription that yields what `stream` yields.
    pub fn new(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self { events: Box::pin(stream), early: None, pace: Pace::new() }
    }

    /// A subscription fed through the returned [`Publisher`], which keeps up to `capacity` events
    /// that were not read yet. `on_drop` runs when the subscription is dropped.
    pub fn channel(capacity: usize, on_drop: impl FnOnce() + Send + 'static) -> (Publisher, Self) {
        let (sender, inbox) = inbox(capacity);
        let on_drop = OnDrop(Some(Box::new(on_drop)));
        (Publisher(sender), Self::new(Channel { inbox, _on_drop: on_drop }))
    }

    /// A subscription that never yields, for stores that cannot push.
    pub fn silent() -> Self {
        Self::new(Silent)
    }

    /// The next event; `None` when the store closed the subscription.
    ///
    /// Cancel-safe: no event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Subscription {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.early.is_none() {
            match ready!(self.events.as_mut().poll_next(cx)) {
                // It costs the reader nothing, and is not to be missed.
                Some(fact @ (Event::Taken { .. } | Event::Granted { .. })) => return Poll::Ready(Some(fact)),
                Some(hint) => self.early = Some(hint),
                None => return Poll::Ready(None),
            }
        }
        ready!(self.pace.poll(cx));
        Poll::Ready(self.early.take())
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

/// The store's end of a [`Subscription`].
#[derive(Clone, Debug)]
pub struct Publisher(InboxSender<Event>);

impl Publisher {
    /// Hands `event` to the subscriber. Never waits: when the subscriber is too far behind, it gets
    /// one [`Event::Missed`] for all it could not take.
    pub fn publish(&self, event: Event) {
        self.0.send(event);
    }

    /// Whether the subscription was dropped.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

struct Channel {
    inbox: Inbox<Event>,
    _on_drop: OnDrop,
}

impl Stream for Channel {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.inbox.poll_recv(cx).map(|received| {
            received.map(|received| match received {
                Received::Item(event) => event,
                Received::Missed => Event::Missed,
            })
        })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// How many events come within `time`, from a stranger who sends without end.
    async fn flooded(subscription: &mut Subscription, publisher: &Publisher, time: Duration) -> usize {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < time {
            publisher.publish(Event::Freed);
            tokio::select! {
                event = subscription.next() => count += usize::from(event.is_some()),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_yielded_at_a_limited_rate_and_a_hand_over_in_it_is_quick() {
        let (publisher, mut subscription) = Subscription::channel(1, || {});
        let first = flooded(&mut subscription, &publisher, Duration::from_secs(1)).await;
        assert!((20..100).contains(&first), "{first} events in the first second");
        let then = flooded(&mut subscription, &publisher, Duration::from_secs(20)).await;
        assert!((150..=250).contains(&then), "{then} events in the next twenty");
        let freed = Instant::now();
        publisher.publish(Event::Freed);
        assert!(subscription.next().await.is_some());
        assert!(freed.elapsed() <= Duration::from_millis(100), "{:?}", freed.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn events_at_a_usual_rate_are_yielded_at_once() {
        let (publisher, mut subscription) = Subscription::channel(1, || {});
        let begun = Instant::now();
        for _ in 0..20 {
            publisher.publish(Event::Freed);
            assert_eq!(subscription.next().await, Some(Event::Freed));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn losses_are_all_told_however_many_there_are() {
        let (publisher, mut subscription) = Subscription::channel(1000, || {});
        let taken = Event::Taken { key: Key::new("k").unwrap(), fence: Fence::new(7).unwrap(), how: Loss::Stolen };
        let begun = Instant::now();
        for _ in 0..1000 {
            publisher.publish(taken.clone());
        }
        for _ in 0..1000 {
            assert_eq!(subscription.next().await, Some(taken.clone()));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_had_to_wait_is_not_lost_with_the_future_that_waited() {
        let (publisher, mut subscription) = Subscription::channel(1, || {});
        loop {
            publisher.publish(Event::Freed);
            if tokio::time::timeout(Duration::from_millis(1), subscription.next()).await.is_err() {
                break;
            }
        }
        drop(publisher);
        assert_eq!(subscription.next().await, Some(Event::Freed));
        assert_eq!(subscription.next().await, None);
    }
}
