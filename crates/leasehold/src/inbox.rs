//! A queue for hints: it has a limit, never keeps the sender waiting, and tells the reader if
//! something did not fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::mpsc;

/// A queue of up to `capacity` unread items.
pub(crate) fn inbox<T>(capacity: usize) -> (InboxSender<T>, Inbox<T>) {
    let (sender, receiver) = mpsc::channel(capacity);
    let missed = Arc::new(AtomicBool::new(false));
    (InboxSender { sender, missed: missed.clone() }, Inbox { receiver, missed })
}

#[derive(Debug)]
pub(crate) struct InboxSender<T> {
    sender: mpsc::Sender<T>,
    missed: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct Inbox<T> {
    receiver: mpsc::Receiver<T>,
    missed: Arc<AtomicBool>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    Item(T),
    /// One for all items that did not fit since the last time.
    Missed,
}

impl<T> InboxSender<T> {
    /// Puts an item into the queue, or drops it if the queue is full.
    pub(crate) fn send(&self, item: T) {
        if let Err(mpsc::error::TrySendError::Full(item)) = self.sender.try_send(item) {
            self.missed.store(true, Ordering::Release);
            // The reader may have emptied the queue before the mark was set and sleep by now: wake
            // it.
            let _ = self.sender.try_send(item);
        }
    }

    /// Whether the reader is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), missed: self.missed.clone() }
    }
}

impl<T> Inbox<T> {
    /// The next item; `None` when all senders are gone and everything is read.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received<T>>> {
        if self.missed.swap(false, Ordering::AcqRel) {
            return Poll::Ready(Some(Received::Missed));
        }
        self.receiver.poll_recv(cx).map(|item| item.map(Received::Item))
    }
}

#[cfg(any(feature = "redis", feature = "postgres"))]
impl<T> Inbox<T> {
    /// As [`poll_recv`](Self::poll_recv). Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Received<T>> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }
}

#[cfg(feature = "redis")]
impl<T> Inbox<T> {
    /// Whether all senders are gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.receiver.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn recv<T>(inbox: &mut Inbox<T>) -> Option<Received<T>> {
        std::future::poll_fn(|cx| inbox.poll_recv(cx)).await
    }

    #[tokio::test]
    async fn what_does_not_fit_is_told_once_and_the_rest_is_kept() {
        let (sender, mut inbox) = inbox(3);
        (0..1000).for_each(|number| sender.send(number));
        assert_eq!(recv(&mut inbox).await, Some(Received::Missed));
        for number in 0..3 {
            assert_eq!(recv(&mut inbox).await, Some(Received::Item(number)));
        }
        sender.send(1000);
        drop(sender);
        assert_eq!(recv(&mut inbox).await, Some(Received::Item(1000)));
        assert_eq!(recv(&mut inbox).await, None);
    }
}
