//! Processes that wait for one lock, in line and not: how long the unluckiest waits, and what a
//! hand-over takes with one and with many who wait, on each store.
//! `cargo bench -p leasehold-bench --bench lines`, or with `-- redis` behind it for one store.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::Locks;

/// Set to the URL of a store, it makes this program one of those who wait.
const URL: &str = "LEASEHOLD_BENCH_LINE";
/// How many times it holds the lock, for how many milliseconds, how many it rests before it asks
/// again, and whether in line.
const JOB: &str = "LEASEHOLD_BENCH_JOB";

const MANY: usize = 100;

/// How long a lock is held, in milliseconds: briefly, and for as long as the last of many waits.
const BRIEF: u64 = 5;
const LONG: u64 = 600;

#[derive(Clone, Copy)]
struct Job {
    holds: usize,
    millis: u64,
    rest: u64,
    fair: bool,
}

/// One time that a process wanted, got and gave back the lock, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Turn {
    sent: u64,
    granted: u64,
    released: u64,
}

fn main() {
    if let Ok(url) = std::env::var(URL) {
        return take_turns(&url, &std::env::var(JOB).unwrap());
    }
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    if wanted("sqlite") {
        let directory = tempfile::tempdir().unwrap();
        report("SQLite", &format!("sqlite:{}", directory.path().join("locks.db").display()));
    }
    if wanted("redis") {
        let redis = test_servers::Redis::start();
        report("Redis", &redis.url());
    }
    if wanted("postgres") {
        // Whoever waits has a connection to listen and one to ask.
        let postgres = test_servers::Postgres::with(&[("max_connections", "400")]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Locks::migrate(&postgres.url()).await }).unwrap();
        report("PostgreSQL", &postgres.url());
        runtime.block_on(beside_listeners(&postgres.url()));
    }
}

fn report(name: &str, url: &str) {
    println!("{name}: 8 processes that hold the lock 15 times for 0.1 s");
    for fair in [false, true] {
        let turns = run(url, 8, Job { holds: 15, millis: 100, rest: 0, fair });
        let waits = sorted(turns.iter().map(|turn| turn.granted - turn.sent));
        let cycle = (turns.last().unwrap().released - turns[0].granted) as f64 / turns.len() as f64;
        let longest = *waits.last().unwrap() as f64;
        println!(
            "  {:<11} longest wait {:>5.2} s, {:.2} times the ideal of seven turns ({:.2} s)",
            if fair { "in line" } else { "not in line" },
            longest / 1e9,
            longest / (7.0 * cycle),
            7.0 * cycle / 1e9
        );
    }
    println!("{name}: hand-over from release to grant");
    let brief = Job { holds: 200, millis: BRIEF, rest: 3, fair: false };
    // A process that has slept for as long as one of many does is slower to wake.
    let long = Job { holds: 20, millis: LONG, ..brief };
    let of_many = Job { holds: 4, ..brief };
    hand_overs(url, 2, brief);
    let one = hand_overs(url, 2, long);
    hand_overs(url, 2, Job { fair: true, ..brief });
    hand_overs(url, 2, Job { fair: true, ..long });
    let many = hand_overs(url, MANY, Job { fair: true, ..of_many });
    hand_overs(url, MANY, of_many);
    println!("  {} in line: {:.2} times one that waits as long without a line", MANY - 1, many / one);
}

/// Prints what hand-overs take, and returns the median in milliseconds. Whoever gave the lock back
/// asks again while the next one has it, so that nobody is in the way of the hand-over.
fn hand_overs(url: &str, processes: usize, job: Job) -> f64 {
    let turns = run(url, processes, job);
    // While somebody waited.
    let waited = turns.windows(2).filter(|pair| pair[1].sent < pair[0].released);
    let times = sorted(waited.map(|pair| pair[1].granted.saturating_sub(pair[0].released)));
    let at = |percent: usize| times[times.len() * percent / 100] as f64 / 1e6;
    let how = if job.fair { "in line" } else { "not in line" };
    let waiting = format!("{} waiting, {how}, holds of {} ms", processes - 1, job.millis);
    println!("  {waiting:<38} p50 {:>6.2} ms  p95 {:>6.2} ms  ({} hand-overs)", at(50), at(95), times.len());
    at(50)
}

/// What PostgreSQL's own wake-ups cost: a notification wakes every session that listens to
/// anything.
async fn beside_listeners(url: &str) {
    println!("PostgreSQL: the same beside {} sessions that listen to something else", MANY - 2);
    let mut sessions = Vec::new();
    for _ in 0..MANY - 2 {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("LISTEN something_else").await.unwrap();
        sessions.push(client);
    }
    let url = url.to_owned();
    let job = Job { holds: 200, millis: BRIEF, rest: 3, fair: true };
    tokio::task::spawn_blocking(move || hand_overs(&url, 2, job)).await.unwrap();
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values
}

/// All turns of so many processes, in the order of their grants.
fn run(url: &str, processes: usize, job: Job) -> Vec<Turn> {
    let mut children: Vec<Child> = (0..processes)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(URL, url).env(JOB, format!("{} {} {} {}", job.holds, job.millis, job.rest, job.fair));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut heard: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap()).lines()).collect();
    for heard in &mut heard {
        assert_eq!(heard.next().unwrap().unwrap(), "ready");
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut turns = Vec::new();
    for line in heard.into_iter().flatten() {
        let line = line.unwrap();
        let mut times = line.split(' ').map(|time| time.parse().unwrap());
        let mut next = || times.next().unwrap();
        turns.push(Turn { sent: next(), granted: next(), released: next() });
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    turns.sort_unstable_by_key(|turn| turn.granted);
    turns
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn take_turns(url: &str, job: &str) {
    let [holds, millis, rest, fair] = job.split(' ').collect::<Vec<_>>()[..] else { panic!("no job") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(url).await.unwrap();
        println!("ready");
        std::io::stdin().lines().next().unwrap().unwrap();
        for _ in 0..holds.parse::<usize>().unwrap() {
            let request = locks.lock("line").wait_forever();
            let request = if fair == "true" { request } else { request.unfair() };
            let sent = now();
            let guard = request.acquire().await.unwrap();
            let granted = now();
            tokio::time::sleep(Duration::from_millis(millis.parse().unwrap())).await;
            let released = now();
            guard.release().await.unwrap();
            println!("{sent} {granted} {released}");
            tokio::time::sleep(Duration::from_millis(rest.parse().unwrap())).await;
        }
        locks.shutdown().await.unwrap();
    });
}
