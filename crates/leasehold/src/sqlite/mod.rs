//! Locks in a SQLite file.

mod access;
#[cfg(test)]
mod agreement;
mod bus;
mod calls;
mod clock;
mod crowd;
mod database;
mod directory;
mod driver;
mod error;
mod examine;
#[cfg(feature = "_fuzzing")]
pub(crate) mod fuzzing;
mod job;
mod key_rows;
mod looks;
mod open;
mod operations;
mod placeholder;
mod push;
mod read_only;
mod rows;
mod stand_in;
mod url;
mod worker;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::oneshot;

use self::database::Database;
use self::job::{Answer, Job, Op};
use self::push::SocketConnection;
use crate::backend::{
    Acquire, AcquireAll, AcquireRequest, Backend, Capabilities, Extend, Inspected, ListPage, ListRequest, LookupBy,
    MOST_KEYS, Record, Release, Subscription, TimeAuthority, Topic,
};
use crate::process::Process;
use crate::remote::listener::Listener;
use crate::remote::notification::{GRANTED_TOPIC, TAKEN_TOPIC, freed_topic};
use crate::remote::per_runtime::PerRuntime;
use crate::{Check, Error, ErrorCode, Fence, Key, LockId, Operation, Timestamp, Ttl};

pub(crate) use driver::Driver;

/// The longest a caller looks for its answer before it sleeps: a few transactions.
const LOOK_FOR_ANSWER: Duration = Duration::from_micros(60);

/// Locks in a SQLite file, for all the processes of one host. No server is needed.
///
/// The file must be on a local file system; it and its directory must be writable. All processes
/// must run on the same kernel: time is counted on its monotonic clock, so that setting the wall
/// clock does not matter. Each handle has a thread of its own for the database; operations that
/// meet there are carried out in one transaction.
///
/// A file that is deleted or replaced while it is in use fails every operation from then on.
///
/// ```
/// use leasehold::sqlite::Sqlite;
/// use leasehold::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("locks.db");
/// let locks = Locks::new(Sqlite::open(&path).await?);
/// let report = locks.lock("nightly-report");
/// report.run(|lease| async move { println!("fence {}", lease.fence()) }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    handle: Arc<Handle>,
    listeners: Arc<PerRuntime<Listener>>,
}

/// How a database file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Whether to make the file if it is not there. It is by default.
    pub create: bool,
    /// How much survives a power cut.
    pub synchronous: Synchronous,
}

/// How much survives a power cut. A crash of a process loses nothing either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// The last transactions may be lost, which does no harm: every holder lived on the machine
    /// that lost power, and fences never fall below the clock.
    #[default]
    Normal,
    /// Nothing is lost, and every transaction waits for the disk.
    Full,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { create: true, synchronous: Synchronous::Normal }
    }
}

impl SqliteOptions {
    /// Whether to make the file if it is not there.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How much survives a power cut.
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }
}

struct Handle {
    path: PathBuf,
    read_only: bool,
    jobs: Sender<Job>,
    /// How many calls wait for an answer.
    calls: AtomicUsize,
    /// Where the thread of the database is.
    process: Process,
}

impl Sqlite {
    /// Opens the database file at `path`, and makes it if it is not there.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) if the directory does not exist, the file is
    /// not a database, or belongs to another program or a newer version of this one;
    /// [`AuthFailed`](ErrorCode::AuthFailed) if it may not be written;
    /// [`Internal`](ErrorCode::Internal) if it is corrupt;
    /// [`ServiceUnavailable`](ErrorCode::ServiceUnavailable) if the disk fails or is full.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, SqliteOptions::default()).await
    }

    /// Opens the database file at `path` in the way `options` say.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`open`](Sqlite::open).
    pub async fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, Error> {
        let path = resolve(path.as_ref())?;
        let open = {
            let path = path.clone();
            move || Database::open(&path, &options)
        };
        Self::start(path, open, false).await
    }

    /// Opens the database file at `path` to look at it: without the right to write, and nothing is
    /// made or changed. While there is no file, there are no locks. Whoever wants to change
    /// something gets an error, or is not heard.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As [`open`](Sqlite::open), but for those about a missing file or right to write.
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = resolve(path.as_ref())?;
        let open = {
            let path = path.clone();
            move || Database::open_read_only(&path)
        };
        Self::start(path, open, true).await
    }

    async fn start(
        path: PathBuf,
        open: impl FnOnce() -> Result<Database, Error> + Send + 'static,
        read_only: bool,
    ) -> Result<Self, Error> {
        let (jobs, opened) = worker::start(open)?;
        opened.await.unwrap_or_else(|_| Err(stopped()))?;
        let handle =
            Arc::new(Handle { path, read_only, jobs, calls: AtomicUsize::new(0), process: Process::current() });
        Ok(Self { handle, listeners: Arc::new(PerRuntime::new()) })
    }

    /// Removes what keys have left that only an examination or a try used: their fences.
    pub(crate) async fn forget(&self, keys: &[Key]) -> Result<(), Error> {
        self.call(Op::Forget(keys.to_vec())).await.map(drop)
    }

    /// Waits until every database that was opened in this process is closed, which happens a moment
    /// after its last handle was dropped; tells whether that came about in time. It blocks the
    /// thread: for the end of a program, which otherwise leaves the log beside the file for the
    /// next one to clear up.
    pub fn wait_until_closed(timeout: Duration) -> bool {
        open::OPEN.wait_until_closed(timeout)
    }

    /// Looks for whatever could break locks or fences in this store.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// As for any operation, if the store cannot be examined at all.
    pub async fn examine(&self) -> Result<Vec<Check>, Error> {
        match self.call(Op::Examine).await? {
            Answer::Examined(checks) => Ok(checks),
            _ => Err(stopped()),
        }
    }

    async fn call(&self, op: Op) -> Result<Answer, Error> {
        self.handle.call(op).await
    }

    async fn find(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        let op = match by {
            LookupBy::Key(key) => Op::ByKey(key.clone()),
            LookupBy::Id(id) => Op::ById(*id),
        };
        match self.call(op).await? {
            Answer::Found(record) => Ok(record),
            _ => Err(stopped()),
        }
    }
}

/// The path of the database file itself: SQLite keeps its log beside that, and not beside a link to
/// it. And a program that changes its directory later must still find it.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    const MOST_LINKS: usize = 40;
    let unusable = |source| Error::invalid("the database file has no usable path").with_source(source);
    let mut path = std::path::absolute(path).map_err(unusable)?;
    for _ in 0..MOST_LINKS {
        match (path.canonicalize(), path.read_link()) {
            (Ok(file), _) => return Ok(file),
            // The file may yet be made where the link leads.
            (Err(_), Ok(target)) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            (Err(_), Err(_)) => break,
        }
    }
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    Ok(directory.zip(path.file_name()).map_or_else(|| path.clone(), |(directory, name)| directory.join(name)))
}

/// Counts the calls that wait for an answer.
struct Calling<'a> {
    calls: &'a AtomicUsize,
    /// Nobody else waits, so the answer comes after one transaction.
    alone: bool,
}

impl<'a> Calling<'a> {
    fn new(calls: &'a AtomicUsize) -> Self {
        Self { calls, alone: calls.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Looks for the answer for as long as a transaction takes. Going to sleep and being woken takes
/// several times longer, and this blocks the caller's thread no longer than a transaction of its
/// own would.
fn look_for(answer: &mut oneshot::Receiver<Result<Answer, Error>>) -> Option<Result<Answer, Error>> {
    static SPARE_CORES: OnceLock<bool> = OnceLock::new();
    if !SPARE_CORES.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)) {
        return None;
    }
    let looking = Instant::now();
    while looking.elapsed() < LOOK_FOR_ANSWER {
        match answer.try_recv() {
            Ok(answer) => return Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => std::hint::spin_loop(),
            Err(oneshot::error::TryRecvError::Closed) => return Some(Err(stopped())),
        }
    }
    None
}

/// The thread of the database is gone, which only a bug could bring about.
fn stopped() -> Error {
    Error::new(ErrorCode::Internal, "the thread of the database has stopped").with_outcome_unknown()
}

/// Refuses what would be two answers about one lock.
fn check_all(requests: &[AcquireRequest]) -> Result<(), Error> {
    let keys: HashSet<_> = requests.iter().map(|request| &request.key).collect();
    let ids: HashSet<_> = requests.iter().map(|request| request.lock_id).collect();
    let distinct = keys.len() == requests.len() && ids.len() == requests.len();
    if distinct && requests.len() <= MOST_KEYS {
        return Ok(());
    }
    let wrong = format!("several locks at once are up to {MOST_KEYS}, each of a key and with an id of its own");
    Err(Error::invalid(wrong).during(Operation::Acquire))
}

/// The answers for so many locks, none of which could be decided on.
fn failed<T>(locks: usize, outcome: Result<Answer, Error>) -> Vec<Result<T, Error>> {
    let error = outcome.err().unwrap_or_else(stopped);
    (0..locks).map(|_| Err(error.clone())).collect()
}

impl Handle {
    async fn call(&self, op: Op) -> Result<Answer, Error> {
        self.process.check()?;
        if self.read_only && !op.only_reads() {
            return Err(Error::new(ErrorCode::AuthFailed, "this handle only looks at locks")
                .with_hint("connect with the right to write"));
        }
        let (reply, mut answer) = oneshot::channel();
        let calling = Calling::new(&self.calls);
        self.jobs.send(Job { op, reply: Some(reply) }).map_err(|_| stopped())?;
        if calling.alone
            && let Some(answer) = look_for(&mut answer)
        {
            return answer;
        }
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Sends a job whose answer nobody waits for.
    fn send(&self, op: Op) {
        let _ = self.jobs.send(Job { op, reply: None });
    }
}

#[async_trait]
impl Backend for Sqlite {
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquire, Error> {
        match self.call(Op::Acquire(request.clone())).await? {
            Answer::Acquire(answer) => Ok(answer),
            _ => Err(stopped()),
        }
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AcquireAll, Error> {
        check_all(requests)?;
        match self.call(Op::AcquireAll(requests.to_vec())).await? {
            Answer::AcquireAll(answer) => Ok(answer),
            _ => Err(stopped()),
        }
    }

    async fn release(&self, id: &LockId) -> Result<Release, Error> {
        self.release_many(&[*id]).await.pop().unwrap_or_else(|| Err(stopped()))
    }

    async fn extend(&self, id: &LockId, ttl: Ttl) -> Result<Extend, Error> {
        self.extend_many(&[(*id, ttl)]).await.pop().unwrap_or_else(|| Err(stopped()))
    }

    async fn extend_many(&self, locks: &[(LockId, Ttl)]) -> Vec<Result<Extend, Error>> {
        match self.call(Op::Extend(locks.to_vec())).await {
            Ok(Answer::Extend(answers)) => answers,
            outcome => failed(locks.len(), outcome),
        }
    }

    async fn release_many(&self, ids: &[LockId]) -> Vec<Result<Release, Error>> {
        match self.call(Op::Release(ids.to_vec())).await {
            Ok(Answer::Release(answers)) => answers,
            outcome => failed(ids.len(), outcome),
        }
    }

    async fn is_locked(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.find(LookupBy::Key(key)).await?.is_some())
    }

    async fn lookup(&self, by: LookupBy<'_>) -> Result<Option<Record>, Error> {
        self.find(by).await
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Error> {
        match self.call(Op::Inspect(key.clone())).await? {
            Answer::Inspected(found) => Ok(found),
            _ => Err(stopped()),
        }
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, Error> {
        match self.call(Op::List(request.clone())).await? {
            Answer::List(page) => Ok(page),
            _ => Err(stopped()),
        }
    }

    async fn subscribe(&self, topic: Topic<'_>) -> Result<Subscription, Error> {
        let name = match topic {
            Topic::Freed(key) => freed_topic(key.as_str()),
            Topic::Turn(key, id) => push::turn_of(key, id),
            Topic::Taken => TAKEN_TOPIC.to_owned(),
            Topic::Granted => GRANTED_TOPIC.to_owned(),
        };
        if self.handle.read_only {
            // Whoever listens has to write that down.
            let options = SqliteOptions::default().with_create(false);
            return Self::open_with(&self.handle.path, options).await?.subscribe(topic).await;
        }
        let server = || Arc::new(self.handle.clone());
        let listener = self.listeners.get(|| Ok(Listener::start::<SocketConnection>(server())))?;
        listener.subscribe(name, topic.backlog(), self.capabilities().call_timeout).await
    }

    async fn force_release(&self, key: &Key, only: Option<Fence>) -> Result<Vec<Record>, Error> {
        match self.call(Op::ForceRelease(key.clone(), only)).await? {
            Answer::ForceRelease(answer) => Ok(answer),
            _ => Err(stopped()),
        }
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        match self.call(Op::Now).await? {
            Answer::Now(now) => Ok(now),
            _ => Err(stopped()),
        }
    }

    fn capabilities(&self) -> Capabilities {
        // Datagrams do not reach a socket that is full, or another user's that is not for us.
        Capabilities::new(TimeAuthority::Store)
            .with_wake_ups(true)
            .with_lossy_wake_ups(true)
            .with_clock_floored_fences(true)
            .with_lines(true)
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.handle.path).finish_non_exhaustive()
    }
}
