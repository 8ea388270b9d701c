//! Programs that are killed, on a server that is killed too.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{LockState, Locks};
use leasehold_conformance::history::{Event, What};
use test_support::{Case, Setup, cases, eventually};

use crate::Store;
use crate::support::assert_sound;

pub(crate) const CASES: &[Case] = cases![a_counter_misses_no_increment_while_its_writers_and_the_server_are_killed];

/// Set to the URL of a server, it makes the test one of its own workers.
const SERVER: &str = "LEASEHOLD_FAULTS_SERVER";
/// The directory in which it works.
const PLACE: &str = "LEASEHOLD_FAULTS_PLACE";

const KEY: &str = "counter";
/// How soon the lock of a killed worker is free, but for the tolerance.
const TTL: Duration = Duration::from_millis(1000);
const WORKERS: usize = 4;

/// Nanoseconds on a clock that the processes of this host share.
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// What the lock protects: how often it was incremented, and the fence of the last who did.
fn read(counter: &Path) -> (u64, u64) {
    let text = fs::read_to_string(counter).unwrap();
    let (count, fence) = text.split_once(' ').unwrap();
    (count.parse().unwrap(), fence.parse().unwrap())
}

/// Two files that a worker appends to, one line at a time, so that they can be read when it was
/// killed.
struct Log {
    events: fs::File,
    counts: fs::File,
}

impl Log {
    fn open(place: &Path, worker: u32) -> Self {
        let open = |name: String| fs::File::options().create(true).append(true).open(place.join(name)).unwrap();
        Self { events: open(format!("{worker}.events")), counts: open(format!("{worker}.counts")) }
    }

    fn record(&mut self, at: u64, lock: &str, what: What) {
        let event = Event { at, key: KEY.to_owned(), lock: lock.to_owned(), what };
        let line = serde_json::to_string(&event).unwrap() + "\n";
        self.events.write_all(line.as_bytes()).unwrap();
    }
}

/// The work of a process that the test starts: the test itself, with a server to work on.
async fn work(url: &str, place: PathBuf) {
    let (counter, draft) = (place.join("counter"), place.join(format!("{}.draft", std::process::id())));
    let mut log = Log::open(&place, std::process::id());
    let store = loop {
        match Locks::connect(url).await {
            Ok(locks) => break locks.backend().clone(),
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    };
    let locks = Locks::builder(store).on_release_error(|_| {}).build();
    while !place.join("over").exists() {
        let sent = now();
        let guard = locks.lock(KEY).ttl(TTL).wait_forever().acquire().await.unwrap();
        let (lock, fence) = (guard.lock_id().hash_id().to_string(), guard.fence().get());
        log.record(sent, &lock, What::AcquireSent { may_steal: false });
        log.record(now(), &lock, What::Granted { fence, deadline: u64::MAX });
        let (count, last) = read(&counter);
        assert!(fence > last, "fence {fence} after {last}");
        // Now and then for longer than the server is away: whoever is let in meanwhile reads the
        // same.
        let work = if fastrand::u8(..5) == 0 { 400 } else { fastrand::u64(1..10) };
        tokio::time::sleep(Duration::from_millis(work)).await;
        if guard.state() == LockState::Lost {
            log.record(now(), &lock, What::Lost);
            continue;
        }
        fs::write(&draft, format!("{} {fence}", count + 1)).unwrap();
        fs::rename(&draft, &counter).unwrap();
        log.counts.write_all(format!("{}\n", count + 1).as_bytes()).unwrap();
        log.record(now(), &lock, What::ReleaseSent);
        if guard.release().await.is_ok() {
            log.record(now(), &lock, What::Released);
        }
    }
}

struct Worker(Child);

impl Worker {
    /// The same test in a process of its own.
    fn start(store: Store, url: &str, place: &Path) -> Self {
        let test = "processes::a_counter_misses_no_increment_while_its_writers_and_the_server_are_killed";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("{}::{test}", store.name)]);
        Self(command.env(SERVER, url).env(PLACE, place).stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    /// Kills it as the kernel would. Whatever it held it holds no more.
    fn kill(mut self, place: &Path) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let mut log = Log::open(place, self.0.id());
        let held: BTreeSet<_> = events(place, self.0.id()).into_iter().map(|event| event.lock).collect();
        held.iter().for_each(|lock| log.record(now(), lock, What::Lost));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn events(place: &Path, worker: u32) -> Vec<Event> {
    let lines = fs::read_to_string(place.join(format!("{worker}.events"))).unwrap_or_default();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn a_counter_misses_no_increment_while_its_writers_and_the_server_are_killed(store: Store) {
    if let (Ok(url), Ok(place)) = (std::env::var(SERVER), std::env::var(PLACE)) {
        return work(&url, place.into()).await;
    }
    let server = store.server_with(&Setup { durable: true, ..Setup::default() });
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let counter = place.join("counter");
    fs::write(&counter, "0 0").unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start(store, &server.url(), place)).collect();
    let mut everybody: Vec<u32> = workers.iter().map(|worker| worker.0.id()).collect();
    let count = || read(&counter).0;
    let progress = async |more: u64| {
        let enough = count() + more;
        eventually("the counter goes on", async || count() >= enough).await;
    };
    let mut kills = 0;
    for _ in 0..3 {
        progress(10).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..200))).await;
        workers.swap_remove(fastrand::usize(..workers.len())).kill(place);
        kills += 1;
        server.server().kill();
        server.server().restart();
        progress(5).await;
        workers.push(Worker::start(store, &server.url(), place));
        everybody.push(workers.last().unwrap().0.id());
    }
    progress(10).await;
    fs::write(place.join("over"), "").unwrap();
    for worker in &mut workers {
        let mut status = None;
        eventually("a worker ends", async || {
            status = worker.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert!(status.unwrap().success(), "a worker failed");
    }

    let all: Vec<Event> = everybody.iter().flat_map(|worker| events(place, *worker)).collect();
    let summary = assert_sound(&all);
    let logs = everybody.iter().map(|worker| fs::read_to_string(place.join(format!("{worker}.counts"))).unwrap());
    let counts: Vec<u64> =
        logs.flat_map(|log| log.lines().map(|line| line.parse().unwrap()).collect::<Vec<_>>()).collect();
    let distinct: BTreeSet<u64> = counts.iter().copied().collect();
    assert_eq!(distinct.len(), counts.len(), "an increment was overwritten");
    // A worker may have been killed after its increment and before it could say so.
    let written = u64::try_from(counts.len()).unwrap();
    assert!((written..=written + kills).contains(&count()), "{} of {written}: {summary:?}", count());
    assert!(summary.granted >= 55, "{summary:?}");
}
