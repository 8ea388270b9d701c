//! Processes in line, left in peace and not.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::{Locks, TIME_TOLERANCE};
use test_support::{Ability, Case, cases, eventually};

use crate::Store;
use crate::log::Logs;
use crate::worker::{LEASE, TTL, Worker, task, work};

pub(crate) const CASES: &[Case] =
    cases![processes_are_served_in_their_order, killed_and_stopped_ones_hold_up_nobody_for_long];

/// For how long a process is stopped at the most.
const LONGEST_STOP: Duration = Duration::from_secs(4);

/// What a machine may take longer that has other things to do.
const SLACK: Duration = Duration::from_secs(8);

/// How long the processes are left alone or harassed. Minutes show more.
fn duration() -> Duration {
    let seconds = std::env::var("LEASEHOLD_TEST_SECONDS").map_or(6, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// How many of them there are.
fn processes() -> usize {
    std::env::var("LEASEHOLD_TEST_PROCESSES").map_or(8, |processes| processes.parse().unwrap())
}

/// So many grants at least show that there was something to see.
fn fewest_grants(store: Store) -> usize {
    if store.can(Ability::BusyLocks) { 40 } else { 8 }
}

/// Waits until `more` more locks were granted.
async fn progress(place: &Path, more: usize) {
    let enough = Logs::read(place).grants() + more;
    eventually("somebody is served", async || Logs::read(place).grants() >= enough).await;
}

/// Has all workers come to their end, and the line be empty.
async fn end(url: &str, place: &Path, workers: &mut [Worker]) {
    fs::write(place.join("over"), "").unwrap();
    for worker in workers {
        let mut ended = None;
        eventually("a worker ends", async || {
            ended = worker.ended();
            ended.is_some()
        })
        .await;
        assert_eq!(ended, Some(true), "a worker failed");
    }
    let locks = Locks::connect(url).await.unwrap();
    eventually("no place is left", async || locks.waiters("k").await.unwrap().is_empty()).await;
}

async fn processes_are_served_in_their_order(store: Store) {
    if let Some(task) = task() {
        return work(task).await;
    }
    let (running, directory) = (store.start(), tempfile::tempdir().unwrap());
    let (url, place) = (running.url(), directory.path());
    let name = "processes::processes_are_served_in_their_order";
    let mut workers: Vec<_> = (0..processes()).map(|_| Worker::start(store, name, &url, place)).collect();
    progress(place, fewest_grants(store)).await;
    tokio::time::sleep(duration()).await;
    end(&url, place, &mut workers).await;
    let logs = Logs::read(place);
    logs.assert_sound();
    assert!(logs.in_line() * 2 > logs.grants(), "only {} stood in line", logs.in_line());
    logs.assert_in_order(processes(), &HashSet::new());
}

async fn killed_and_stopped_ones_hold_up_nobody_for_long(store: Store) {
    if let Some(task) = task() {
        return work(task).await;
    }
    let (running, directory) = (store.start(), tempfile::tempdir().unwrap());
    let (url, place) = (running.url(), directory.path());
    let start = || Worker::start(store, "processes::killed_and_stopped_ones_hold_up_nobody_for_long", &url, place);
    let mut workers: Vec<_> = (0..processes()).map(|_| start()).collect();
    progress(place, processes()).await;
    let (started, mut stopped) = (Instant::now(), HashSet::new());
    while started.elapsed() < duration() {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..300))).await;
        let victim = fastrand::usize(..workers.len());
        if fastrand::bool() {
            workers.swap_remove(victim).kill();
            workers.push(start());
        } else {
            stopped.insert(workers[victim].process());
            workers[victim].signal("STOP");
            // Often longer than a called one has, sometimes longer than any lease.
            tokio::time::sleep(LONGEST_STOP.mul_f64(fastrand::f64())).await;
            workers[victim].signal("CONT");
        }
        progress(place, 1).await;
    }
    progress(place, processes()).await;
    end(&url, place, &mut workers).await;
    let logs = Logs::read(place);
    logs.assert_sound();
    logs.assert_in_order(processes(), &stopped);
    let (grants, pause) = (logs.grants(), logs.longest_pause());
    println!("{grants} grants, {pause:.1?} without one at the longest");
    let longest = TTL + TIME_TOLERANCE + LEASE + LONGEST_STOP;
    assert!(pause < longest + SLACK, "{pause:?} without a grant, where {longest:?} are the most");
}
