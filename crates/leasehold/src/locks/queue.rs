use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, Semaphore};

use crate::map::{Map, RandomState};
use crate::sync::lock;

const SHARDS: usize = 16;

/// The lines in which the tasks of this process wait, one for each runtime and key, or set of keys,
/// that somebody wants now: only the first in line deals with the store, the others follow in the
/// order of their arrival. Runtimes do not wait for each other, because one of them may stand
/// still.
#[derive(Debug)]
pub(super) struct Queue<K> {
    hasher: RandomState,
    shards: [Mutex<Shard<K>>; SHARDS],
}

type Shard<K> = Map<K, HashMap<Option<Id>, Arc<KeyQueue>>>;

#[derive(Debug)]
struct KeyQueue {
    /// One permit: the first place. Tokio hands it on in the order of asking, also when waiters
    /// give up.
    first: Semaphore,
    /// The lock was released in this process.
    freed: Notify,
}

impl<K: Hash + Eq + Clone> Queue<K> {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Waits for the first place in the line for `key`.
    ///
    /// Cancel-safe: a task that stops waiting leaves the line.
    pub(super) async fn enter(&self, key: &K) -> Turn<'_, K> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let line = self.shard(key).entry(key.clone()).or_default().entry(runtime).or_insert_with(KeyQueue::new).clone();
        let mut turn = Turn { queue: self, key: key.clone(), runtime, line: Some(line), first: false };
        if let Some(line) = &turn.line
            && let Ok(permit) = line.first.acquire().await
        {
            permit.forget();
            turn.first = true;
        }
        turn
    }

    /// Wakes the first in line for `key`, if there is one: the lock may be free.
    pub(super) fn wake(&self, key: &K) {
        for line in self.shard(key).get(key).into_iter().flat_map(HashMap::values) {
            line.freed.notify_one();
        }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K>> {
        // The remainder is below the number of shards.
        #[allow(clippy::cast_possible_truncation)]
        let shard = (self.hasher.hash_one(key) % SHARDS as u64) as usize;
        lock(&self.shards[shard])
    }
}

impl KeyQueue {
    fn new() -> Arc<Self> {
        Arc::new(Self { first: Semaphore::new(1), freed: Notify::new() })
    }
}

/// A place in a line. Dropping it lets the next one move up.
pub(super) struct Turn<'a, K: Hash + Eq + Clone> {
    queue: &'a Queue<K>,
    key: K,
    runtime: Option<Id>,
    /// There until it is dropped.
    line: Option<Arc<KeyQueue>>,
    first: bool,
}

impl<K: Hash + Eq + Clone> Turn<'_, K> {
    /// The lock was released in this process since the last time this was awaited.
    pub(super) async fn freed(&self) {
        if let Some(line) = &self.line {
            line.freed.notified().await;
        }
    }
}

impl<K: Hash + Eq + Clone> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut shard = self.queue.shard(&self.key);
        let Some(line) = self.line.take() else { return };
        if self.first {
            line.first.add_permits(1);
        }
        // Places are taken and given up only while the shard is locked, so the count is exact: the
        // map and we.
        if Arc::strong_count(&line) == 2
            && let Some(lines) = shard.get_mut(&self.key)
        {
            lines.remove(&self.runtime);
            if lines.is_empty() {
                shard.remove(&self.key);
            }
        }
        drop(line);
        drop(shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn key() -> Key {
        Key::new("queue").unwrap()
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_arrival_and_lines_vanish_when_empty() {
        let queue = Arc::new(Queue::new());
        let first = queue.enter(&key()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..50 {
            let (queue, order) = (queue.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _turn = queue.enter(&key()).await;
                lock(&order).push(number);
            }));
            tokio::task::yield_now().await;
        }
        assert!(lock(&order).is_empty(), "nobody passes the first in line");
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*lock(&order), (0..50).collect::<Vec<_>>());
        assert!(queue.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_blocks_nobody() {
        let (queue, key) = (Queue::new(), key());
        let first = queue.enter(&key).await;
        {
            let mut second = std::pin::pin!(queue.enter(&key));
            assert!(futures_poll(second.as_mut()).await);
        }
        drop(first);
        let third = queue.enter(&key).await;
        drop(third);
        assert!(queue.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    /// Polls once and tells whether the future is pending.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
