//! A server does not outlive the process that started it, even when that is killed.
//!
//! This program is also the process that gets killed: with `VICTIM` set it starts a server and
//! waits for its end.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use shared_memory::{has_shared_memory, shared_memory};
use test_servers::{PgBouncer, Postgres, Redis, Server, eventually, is_alive};

mod shared_memory;

fn main() -> ExitCode {
    if let Ok(victim) = std::env::var("VICTIM") {
        let (server, fate) = victim.split_once(' ').unwrap();
        start_a_server_and_wait(server, fate);
        return ExitCode::FAILURE;
    }
    let mut trials = Vec::new();
    for server in ["redis", "postgres", "pgbouncer"] {
        for (name, fate, kill) in [
            ("a_running_one_dies_with_its_owner", "running", kill as fn(&mut Child)),
            ("a_paused_one_dies_with_its_owner", "paused", kill),
            ("a_restarted_one_dies_with_its_owner", "restarted", kill),
            ("a_paused_one_dies_when_the_whole_group_of_its_owner_is_killed", "paused", kill_group),
            ("a_paused_one_dies_when_the_whole_group_of_its_owner_is_told_to_end", "paused", end_group),
        ] {
            trials.push(Trial::test(format!("{server}::{name}"), move || check(server, fate, kill)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The part of the killed process. The thread that starts the server is not the one that lives on.
fn start_a_server_and_wait(server: &str, fate: &str) {
    match server {
        "redis" => {
            let redis = spawn(Redis::start).join().unwrap();
            suffer(&redis, fate);
            wait_for_the_end(redis.directory(), &[redis.pid()]);
        }
        "postgres" => {
            let postgres = spawn(Postgres::start).join().unwrap();
            suffer(&postgres, fate);
            wait_for_the_end(postgres.directory(), &postgres.pids());
        }
        _ => {
            let postgres = spawn(Postgres::start).join().unwrap();
            let pgbouncer = PgBouncer::start(&postgres, "transaction");
            suffer(&pgbouncer, fate);
            let pids = [postgres.pids(), vec![pgbouncer.pid()]].concat();
            wait_for_the_end(postgres.directory(), &pids);
        }
    }
}

fn suffer(server: &Server, fate: &str) {
    match fate {
        "paused" => server.pause(),
        "restarted" => {
            server.kill();
            server.restart();
        }
        _ => {}
    }
}

fn wait_for_the_end(directory: &Path, pids: &[u32]) {
    let mut line = format!("server {}", directory.display());
    for pid in pids {
        write!(line, " {pid}").unwrap();
    }
    println!("{line}");
    sleep(Duration::from_secs(60));
}

fn check(server: &str, fate: &str, kill: fn(&mut Child)) -> Result<(), Failed> {
    let mut victim = Command::new(std::env::current_exe()?)
        .env("VICTIM", format!("{server} {fate}"))
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()?;
    let started = read_server(victim.stdout.take().unwrap());
    let memory = started.as_ref().and_then(|(directory, _)| shared_memory(directory));
    let alive =
        started.as_ref().is_some_and(|(directory, pids)| directory.exists() && pids.iter().any(|pid| is_alive(*pid)));
    kill(&mut victim);
    victim.wait()?;
    let Some((directory, pids)) = started.filter(|_| alive) else { return Err("no server was started".into()) };
    if memory.is_some() != (server != "redis") {
        return Err("PostgreSQL, and only it, has shared memory".into());
    }
    let what = format!("the end of {pids:?}, of shared memory {memory:?} and of {}", directory.display());
    eventually(&what, || {
        let alive = pids.iter().any(|pid| is_alive(*pid));
        !directory.exists() && !alive && !memory.as_deref().is_some_and(has_shared_memory)
    });
    Ok(())
}

fn read_server(output: ChildStdout) -> Option<(PathBuf, Vec<u32>)> {
    BufReader::new(output).lines().map_while(Result::ok).find_map(|line| {
        let (directory, pids) = line.strip_prefix("server ")?.split_once(' ')?;
        Some((PathBuf::from(directory), pids.split(' ').filter_map(|pid| pid.parse().ok()).collect()))
    })
}

fn kill(victim: &mut Child) {
    victim.kill().unwrap();
}

/// As test runners do.
fn kill_group(victim: &mut Child) {
    killpg(group(victim), Signal::SIGKILL).unwrap();
}

fn end_group(victim: &mut Child) {
    killpg(group(victim), Signal::SIGTERM).unwrap();
}

fn group(victim: &Child) -> Pid {
    Pid::from_raw(i32::try_from(victim.id()).unwrap())
}
