//! Those who wait for a key, and those of them who are gone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::backend::{Absence, Backend, Event, Line, Release, Topic};
use leasehold::sqlite::Sqlite;
use leasehold::{ErrorCode, LockId};
use test_support::{eventually, granted, held, key, request, soon};

use crate::support::{count, directory, joining, raw, waiter, waits};

/// The file whose lock `k` another process of this program is to wait for.
const WAITS_FOR: &str = "LEASEHOLD_TEST_WAITS_FOR";

/// What another process does, which a test starts.
#[tokio::test]
async fn waits_in_a_process_of_its_own() {
    let Ok(path) = std::env::var(WAITS_FOR) else { return };
    let store = Sqlite::open(path).await.unwrap();
    let waiting = waiter("k");
    held(&store, &waiting).await;
    let _taken = store.subscribe(Topic::Taken).await.unwrap();
    let mut turn = store.subscribe(Topic::Turn(&waiting.key, &waiting.lock_id)).await.unwrap();
    println!("\nwaiting {}", waiting.lock_id.expose());
    turn.next().await;
    granted(&store, &waiting).await;
    println!("\nholding {}", waiting.lock_id.expose());
    std::future::pending::<()>().await;
}

/// Has this lock id listen for its turn as a process would that was killed.
fn listen_and_crash(path: &Path, id: &LockId) {
    let name = LockId::random().unwrap().expose().to_owned();
    let socket = path.with_extension("db-listeners").join(&name);
    drop(std::os::unix::net::UnixDatagram::bind(socket).unwrap());
    let listens = "INSERT INTO listeners VALUES (?1, ?2)";
    raw(path).execute(listens, [format!("turn:{}", id.expose()), name]).unwrap();
}

/// A process that waits, and is killed in the end.
struct WaitingProcess {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl WaitingProcess {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "lines::waits_in_a_process_of_its_own", "--nocapture"]).env(WAITS_FOR, path);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut started = Self { process, lines };
        started.says("waiting");
        started
    }

    fn says(&mut self, what: &str) -> LockId {
        let said = |line: String| line.strip_prefix(what).and_then(|id| id.trim().parse().ok());
        self.lines.by_ref().map_while(Result::ok).find_map(said).unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for WaitingProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
async fn waiters_whose_processes_were_killed_are_passed_over_at_once() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let mut first: Vec<_> = (0..3).map(|_| WaitingProcess::start(&path)).collect();
    let mut next = WaitingProcess::start(&path);
    let last = waiter("k");
    waits(&store, &last, 4).await;
    first.iter_mut().for_each(WaitingProcess::kill);

    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    // No lease had to run out for that: it is so when the release is answered, or a moment later.
    let holds = next.says("holding");
    let inspected = store.inspect(&holder.key).await.unwrap();
    assert_eq!(inspected.holders[0].lock_id, holds);
    let waiters: Vec<_> = inspected.waiters.iter().map(|waiter| waiter.lock_id).collect();
    assert_eq!(waiters, [last.lock_id], "those who are gone have left the line");
    drop(next);
}

#[tokio::test]
async fn a_waiter_who_is_found_dead_in_the_middle_of_the_line_is_struck_off() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    waits(&store, &waiter("k"), 0).await;
    let mut process = WaitingProcess::start(&path);
    let last = waiter("k");
    waits(&store, &last, 2).await;
    process.kill();
    // Whoever listens for locks that are taken is told of this one, and is not there.
    granted(&store, &request("other")).await;
    store.force_release(&key("other"), None).await.unwrap();
    waits(&store, &last, 1).await;
    assert_eq!(count(&path, "SELECT count(*) FROM listeners"), 0);
}

#[tokio::test]
async fn the_second_is_called_when_the_first_is_found_dead_after_it_was_called() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    // Not by listening for its turn, but as one who is gone altogether.
    let first = waiter("k");
    waits(&store, &first, 0).await;
    let second = waiter("k");
    waits(&store, &second, 1).await;
    let mut turn = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    store.release(&holder.lock_id).await.unwrap();
    assert!(held(&store, &request("k")).await.holders == 0, "kept for the first");
    let address: String = raw(&path).query_row("SELECT address FROM listeners LIMIT 1", [], |row| row.get(0)).unwrap();
    let sockets = path.with_extension("db-listeners");
    drop(std::os::unix::net::UnixDatagram::bind(sockets.join("crashed")).unwrap());
    let listens = "INSERT INTO listeners VALUES (?1, 'crashed'), ('taken', 'crashed')";
    raw(&path).execute(listens, [format!("turn:{}", first.lock_id.expose())]).unwrap();
    granted(&store, &request("other")).await;
    store.force_release(&key("other"), None).await.unwrap();
    assert_eq!(soon("the turn", turn.next()).await, Some(Event::Freed));
    granted(&store, &second).await;
    assert!(!sockets.join("crashed").exists() && sockets.join(address).exists());
}

#[tokio::test]
async fn one_who_is_killed_after_it_was_called_is_passed_over_by_whoever_asks_next() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let (first, second) = (waiter("k"), waiter("k"));
    waits(&store, &first, 0).await;
    waits(&store, &second, 1).await;
    let mut turn = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(store.inspect(&holder.key).await.unwrap().waiters[0].lock_id, first.lock_id, "it was called");
    listen_and_crash(&path, &first.lock_id);
    // Not even the one who finds out need be the next.
    assert_eq!(held(&store, &request("k").with_line(Line::Heed)).await.holders, 0);
    assert_eq!(soon("the turn", turn.next()).await, Some(Event::Freed));
    granted(&store, &second).await;
}

#[tokio::test]
async fn a_waiter_who_does_not_listen_or_whose_socket_was_deleted_keeps_its_place() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    for deleted in [false, true] {
        let holder = request("k");
        granted(&store, &holder).await;
        let (first, second) = (waiter("k"), waiter("k"));
        waits(&store, &first, 0).await;
        waits(&store, &second, 1).await;
        let other = Sqlite::open(&path).await.unwrap();
        let listening = if deleted {
            let turn = other.subscribe(Topic::Turn(&first.key, &first.lock_id)).await.unwrap();
            std::fs::remove_dir_all(path.with_extension("db-listeners")).unwrap();
            Some(turn)
        } else {
            None
        };
        store.release(&holder.lock_id).await.unwrap();
        let waiters = store.inspect(&holder.key).await.unwrap().waiters;
        assert_eq!(waiters[0].lock_id, first.lock_id);
        granted(&store, &first).await;
        for id in [second.lock_id, first.lock_id] {
            store.release(&id).await.unwrap();
        }
        drop(listening);
    }
}

#[tokio::test]
async fn a_thousand_dead_places_cost_one_lease() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let dead: Vec<_> = (0..1000).map(|_| joining(request("k"), 4000)).collect();
    for request in &dead {
        held(&store, request).await;
    }
    let alive = waiter("k");
    held(&store, &alive).await;
    store.release(&holder.lock_id).await.unwrap();
    let released = store.now().await.unwrap();
    let mut grant = None;
    eventually("the one who is alive has it", async || {
        if let leasehold::backend::Acquire::Granted(found) = store.acquire(&alive).await.unwrap() {
            grant = Some(found);
        }
        grant.is_some()
    })
    .await;
    // One after the other they would take more than half an hour.
    let took = grant.unwrap().acquired_at.since(released);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_thousand_waiters_who_were_killed_cost_no_lease_at_all() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let _anybody = store.subscribe(Topic::Taken).await.unwrap();
    for _ in 0..1000 {
        let dead = waiter("k");
        held(&store, &dead).await;
        listen_and_crash(&path, &dead.lock_id);
    }
    let alive = waiter("k");
    // How many are before it depends on whether the store has noticed some of it by itself.
    assert!(held(&store, &alive).await.place.is_some());
    store.release(&holder.lock_id).await.unwrap();
    granted(&store, &alive).await;
}

#[tokio::test]
async fn a_release_that_fails_half_way_has_changed_nothing() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let _anybody = store.subscribe(Topic::Taken).await.unwrap();
    let waiting = [waiter("k"), waiter("k"), waiter("k")];
    for request in &waiting {
        held(&store, request).await;
    }
    for request in &waiting[..2] {
        listen_and_crash(&path, &request.lock_id);
    }
    // It is read only once the two before it are found to be gone.
    let third = "UPDATE line SET since_ms = -since_ms WHERE place = 3";
    raw(&path).execute(third, []).unwrap();
    assert_eq!(store.release(&holder.lock_id).await.unwrap_err().code(), ErrorCode::Internal);
    raw(&path).execute(third, []).unwrap();
    assert!(store.is_locked(&holder.key).await.unwrap());
    assert_eq!(store.release(&holder.lock_id).await.unwrap(), Release::Released);
    granted(&store, &waiting[2]).await;
}

#[tokio::test]
async fn a_turn_is_told_to_nobody_but_the_first_in_line() {
    let (_directory, path) = directory();
    let (store, other) = (Sqlite::open(&path).await.unwrap(), Sqlite::open(&path).await.unwrap());
    let holder = request("a key with spaces");
    granted(&store, &holder).await;
    let (first, second) = (waiter("a key with spaces"), waiter("a key with spaces"));
    waits(&other, &first, 0).await;
    waits(&other, &second, 1).await;
    let mut turns = Vec::new();
    for waiting in [&first, &second] {
        turns.push(other.subscribe(Topic::Turn(&waiting.key, &waiting.lock_id)).await.unwrap());
    }
    let mut freed = other.subscribe(Topic::Freed(&holder.key)).await.unwrap();
    store.release(&holder.lock_id).await.unwrap();
    assert_eq!(soon("the turn of the first", turns[0].next()).await, Some(Event::Freed));
    granted(&other, &first).await;
    store.release(&first.lock_id).await.unwrap();
    // The first message that each of them gets: all go through one socket, in order.
    assert_eq!(soon("the turn of the second", turns[1].next()).await, Some(Event::Freed));
    granted(&other, &second).await;
    store.release(&second.lock_id).await.unwrap();
    assert_eq!(soon("that it is free", freed.next()).await, Some(Event::Freed));
    for turn in &mut turns {
        assert_eq!(soon("that it is free", turn.next()).await, Some(Event::Freed));
    }
    drop((turns, freed));
    eventually("nobody listens", async || count(&path, "SELECT count(*) FROM listeners") == 0).await;
}

#[tokio::test]
async fn dead_places_are_swept() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    granted(&store, &request("k")).await;
    waits(&store, &joining(request("k"), 1), 0).await;
    held(&store, &waiter("k")).await;
    eventually("one is left", async || count(&path, "SELECT count(*) FROM line") == 1).await;
}

#[tokio::test]
async fn a_lost_place_can_be_given_up_and_taken_again() {
    let (_directory, path) = directory();
    let store = Sqlite::open(&path).await.unwrap();
    let holder = request("k");
    granted(&store, &holder).await;
    let waiting = joining(request("k"), 1);
    waits(&store, &waiting, 0).await;
    eventually("it is lost", async || store.inspect(&waiting.key).await.unwrap().waiters.is_empty()).await;
    assert_eq!(store.release(&waiting.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
    assert_eq!(count(&path, "SELECT count(*) FROM line"), 0);
    waits(&store, &waiting, 0).await;
    // For another key as well, once it is lost.
    eventually("it is lost", async || store.inspect(&waiting.key).await.unwrap().waiters.is_empty()).await;
    let elsewhere = request("other").with_lock_id(waiting.lock_id).with_line(Line::Heed);
    granted(&store, &elsewhere).await;
}
