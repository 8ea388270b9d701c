//! All time is the server's.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::backend::{Acquire, Backend, Extend, Line, LookupBy};
use test_support::postgres::{now, row};
use test_support::{granted, held, request, soon, stealing, ttl};

use crate::support::{connect, joining, server};

/// Set to the URL of a server, it makes the test a program that takes locks there.
const URL: &str = "LEASEHOLD_TEST_URL";

/// Puts the clock of a program forward by as many seconds as a variable says.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int outcome = real(clock, time);
  const char *shift = getenv("LEASEHOLD_TEST_SHIFT");
  if (clock == CLOCK_REALTIME && shift) time->tv_sec += atol(shift);
  return outcome;
}
"#;

#[tokio::test]
async fn times_are_the_servers_and_what_is_answered_is_what_is_stored() {
    let server = server().await;
    let store = connect(&server).await;
    let mine = request("order:42");
    let before = now(&server);
    let grant = granted(&store, &mine).await;
    let after = now(&server);
    assert!((before..=after).contains(&grant.acquired_at.as_millis()), "{grant:?}");
    assert_eq!(grant.expires_at.as_millis(), grant.acquired_at.as_millis() + mine.ttl.as_millis());
    assert!(row(&server, "order:42").contains(&format!("|{}|", grant.expires_at.as_millis())));
    let contention = held(&store, &request("order:42")).await;
    assert!((after..=now(&server)).contains(&contention.now.as_millis()), "{contention:?}");
    let before = now(&server);
    let Extend::Extended { expires_at } = store.extend(&mine.lock_id, ttl(90_000)).await.unwrap() else { panic!() };
    assert!((before + 90_000..=now(&server) + 90_000).contains(&expires_at.as_millis()));
    assert!(row(&server, "order:42").contains(&format!("|{}|", expires_at.as_millis())));
}

/// What a program with a wrong clock does: all that is decided by time.
async fn with_a_wrong_clock(url: &str) {
    let store = leasehold::postgres::Postgres::connect(url).await.unwrap();
    let local = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mine = request("mine");
    let grant = granted(&store, &mine).await;
    let apart = Duration::from_millis(local.abs_diff(grant.acquired_at.as_millis()));
    assert!(apart > Duration::from_secs(3000), "the clock is not wrong: {apart:?}");
    assert!(store.is_locked(&mine.key).await.unwrap());
    assert!(store.lookup(LookupBy::Id(&mine.lock_id)).await.unwrap().is_some());
    held(&store, &request("theirs")).await;
    held(&store, &stealing("theirs", 600_000)).await;
    assert!(matches!(store.acquire(&request("dead")).await.unwrap(), Acquire::Granted(_)));
    assert!(!store.is_locked(&request("ended").key).await.unwrap());
    assert_eq!(store.sweep().await.unwrap(), 1, "what is dead, and not what is alive");
    println!("\nexpiry: {}", grant.expires_at.as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_clock_is_an_hour_wrong_takes_locks_like_any_other() {
    if let Ok(url) = std::env::var(URL) {
        return with_a_wrong_clock(&url).await;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, library) = (place.path().join("shift.c"), place.path().join("shift.so"));
    std::fs::write(&source, SHIFT).unwrap();
    let mut compiler = Command::new("cc");
    let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(made.expect("a C compiler").success());
    for shift in ["3600", "-3600"] {
        let server = server().await;
        let store = connect(&server).await;
        granted(&store, &request("theirs")).await;
        test_support::postgres::write(&server, "dead", 60_000, -5_000);
        test_support::postgres::write(&server, "ended", 60_000, -5_000);
        let mut program = Command::new(std::env::current_exe().unwrap());
        let name = "clock::a_program_whose_clock_is_an_hour_wrong_takes_locks_like_any_other";
        program.args(["--exact", name, "--nocapture"]).env("LD_PRELOAD", &library);
        program.env(URL, server.url()).env("LEASEHOLD_TEST_SHIFT", shift);
        let before = now(&server);
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let expiry = said.split("expiry: ").nth(1).unwrap().lines().next().unwrap();
        let expiry: u64 = expiry.parse().unwrap();
        assert!((before + 30_000..=now(&server) + 30_000).contains(&expiry), "{expiry}");
        assert!(row(&server, "mine").contains(&format!("|{expiry}|")));
    }
}

/// What is stored then is as if the clock of the server had been set back by an hour.
#[tokio::test]
async fn who_was_called_before_the_clock_was_set_back_is_called_again() {
    let server = server().await;
    let store = connect(&server).await;
    let (mine, dead, next) = (request("order:42"), joining("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &dead).await;
    store.release(&mine.lock_id).await.unwrap();
    server.sql("UPDATE syncguard_locks_line SET until_ms = until_ms + 3600000");
    server.sql("UPDATE syncguard_locks SET expires_at_ms = expires_at_ms + 3600000");
    let found = held(&store, &next).await;
    assert!(found.free_in() <= Line::CALL_LEASE, "{found:?}");
    soon("it is passed over", async {
        while let Acquire::Held(_) = store.acquire(&next).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
