//! What belongs to one tokio runtime, such as a connection that only this runtime can drive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Error;
use crate::process::Process;
use crate::sync::lock;

/// What nobody used for this long is dropped: a connection that is needed again is soon made again.
const IDLE: Duration = Duration::from_secs(300);

/// One value for each runtime that asks for one, made on first use there. It is dropped when its
/// runtime is gone or nobody used it for long.
///
/// A connection makes no progress while the runtime it was made on stands still. With one for each
/// runtime, a handle works on any of them, whatever the others are doing.
pub(crate) struct PerRuntime<T> {
    values: Arc<Mutex<Values<T>>>,
    idle: Duration,
    closed: DropGuard,
    process: Process,
}

type Values<T> = HashMap<Id, Entry<T>>;

struct Entry<T> {
    value: Arc<T>,
    last_used: Instant,
}

impl<T> Entry<T> {
    fn is_idle(&self, idle: Duration) -> bool {
        Arc::strong_count(&self.value) == 1 && self.last_used.elapsed() >= idle
    }
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    pub(crate) fn new() -> Self {
        Self::with_idle(IDLE)
    }

    fn with_idle(idle: Duration) -> Self {
        let closed = CancellationToken::new().drop_guard();
        Self { values: Arc::default(), idle, closed, process: Process::current() }
    }

    /// The value of the runtime that runs the caller, made by `make` if there is none.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the caller is not on a runtime, or in a fork of the process that made
    /// this; otherwise those of `make`.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<Arc<T>, Error> {
        self.process.check()?;
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let (id, now) = (runtime.id(), Instant::now());
        let mut values = lock(&self.values);
        // The watcher does not see it while the runtime stands still.
        if let Some(entry) = values.get_mut(&id).filter(|entry| !entry.is_idle(self.idle)) {
            entry.last_used = now;
            return Ok(entry.value.clone());
        }
        let value = Arc::new(make()?);
        let _idle = values.insert(id, Entry { value: value.clone(), last_used: now });
        // A runtime that is shutting down drops the watcher at once, which takes the same lock.
        drop(values);
        let watcher = Watcher { values: Arc::downgrade(&self.values), id, value: Arc::downgrade(&value) };
        runtime.spawn(watcher.watch(self.idle, self.closed.token().clone()));
        Ok(value)
    }
}

/// A task on the runtime of a value. It ends when the value is idle, and is dropped with the
/// runtime; either way the value goes.
struct Watcher<T> {
    values: Weak<Mutex<Values<T>>>,
    id: Id,
    value: Weak<T>,
}

impl<T> Watcher<T> {
    async fn watch(self, idle: Duration, closed: CancellationToken) {
        while !self.is_idle(idle) {
            tokio::select! {
                () = closed.cancelled() => return,
                () = tokio::time::sleep(idle / 2) => {}
            }
        }
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let Some(values) = self.values.upgrade() else { return true };
        let values = lock(&values);
        // In use for as long as anybody but the map has it.
        let ours = values.get(&self.id).filter(|entry| self.watches(entry));
        ours.is_none_or(|entry| entry.is_idle(idle))
    }

    /// The id of a runtime that is gone may be another's by now, and an idle value was perhaps
    /// replaced.
    fn watches(&self, entry: &Entry<T>) -> bool {
        Arc::as_ptr(&entry.value) == self.value.as_ptr()
    }
}

impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        let Some(values) = self.values.upgrade() else { return };
        let mut values = lock(&values);
        let ours = values.get(&self.id).is_some_and(|entry| self.watches(entry));
        let gone = if ours { values.remove(&self.id) } else { None };
        drop(values);
        drop(gone);
    }
}

fn no_runtime() -> Error {
    Error::invalid("the store was called outside of a tokio runtime")
        .with_hint("call it from a task, or inside `Runtime::block_on`")
}

impl<T> std::fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerRuntime").field("runtimes", &lock(&self.values).len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn values(of: &PerRuntime<usize>) -> usize {
        lock(&of.values).len()
    }

    #[test]
    fn each_runtime_has_a_value_of_its_own_for_as_long_as_it_lives() {
        let (values_made, per_runtime) = (AtomicUsize::new(0), PerRuntime::new());
        let get = || *per_runtime.get(|| Ok(values_made.fetch_add(1, Ordering::Relaxed))).unwrap();
        let (a, b) = (runtime(), runtime());
        assert_eq!(a.block_on(async { (get(), get()) }), (0, 0));
        assert_eq!(b.block_on(async { (get(), get()) }), (1, 1));
        assert_eq!(a.block_on(async { get() }), 0);
        drop(a);
        assert_eq!(values(&per_runtime), 1, "what belonged to a runtime goes with it");
        assert_eq!(b.block_on(async { get() }), 1);
        drop(b);
        assert_eq!(values(&per_runtime), 0);
        assert!(per_runtime.get(|| Ok(9)).is_err(), "no runtime is an error, not a panic");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_uses_for_long_is_dropped_and_made_anew() {
        let idle = Duration::from_secs(60);
        let (values_made, per_runtime) = (AtomicUsize::new(0), PerRuntime::with_idle(idle));
        let get = || per_runtime.get(|| Ok(values_made.fetch_add(1, Ordering::Relaxed))).unwrap();
        let in_use = get();
        tokio::time::sleep(idle * 3).await;
        assert_eq!((*get(), *in_use), (0, 0), "what is in use stays");
        drop(in_use);
        for _ in 0..5 {
            tokio::time::sleep(idle / 2).await;
            assert_eq!(*get(), 0, "what is used now and then stays");
        }
        tokio::time::sleep(idle * 2).await;
        assert_eq!(values(&per_runtime), 0);
        assert_eq!(*get(), 1);
    }

    #[tokio::test]
    async fn a_store_that_is_dropped_leaves_no_task_behind() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let per_runtime = PerRuntime::new();
        per_runtime.get(|| Ok(0)).unwrap();
        assert_eq!(tasks(), before + 1);
        drop(per_runtime);
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn what_was_idle_while_its_runtime_stood_still_is_made_anew() {
        let idle = Duration::from_millis(50);
        let (values_made, per_runtime) = (AtomicUsize::new(0), PerRuntime::with_idle(idle));
        let get = || *per_runtime.get(|| Ok(values_made.fetch_add(1, Ordering::Relaxed))).unwrap();
        let a = runtime();
        assert_eq!(a.block_on(async { get() }), 0);
        std::thread::sleep(idle * 10);
        assert_eq!(a.block_on(async { get() }), 1, "what nobody used for long is made anew");
    }
}
