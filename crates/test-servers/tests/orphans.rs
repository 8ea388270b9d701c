//! A server does not outlive the process that started it, even when that is killed.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use test_servers::Redis;

/// The part of the killed process, which the tests below start by name.
#[test]
#[ignore = "waits to be killed"]
fn start_a_server_and_wait() {
    let fate = std::env::var("FATE").unwrap_or_default();
    // The thread that starts the server is not the one that lives on.
    let redis = std::thread::spawn(Redis::start).join().unwrap();
    match fate.as_str() {
        "paused" => redis.pause(),
        "restarted" => {
            redis.kill();
            redis.restart();
        }
        _ => {}
    }
    let directory = redis.socket().parent().unwrap();
    println!("\nserver {} {}", redis.pid(), directory.display());
    std::io::stdout().flush().unwrap();
    sleep(Duration::from_secs(60));
}

fn check(fate: &str, kill: impl FnOnce(&mut Child)) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "start_a_server_and_wait", "--ignored", "--nocapture"])
        .env("FATE", fate)
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let server = read_server(victim.stdout.take().unwrap());
    let alive = server.as_ref().is_some_and(|(server, directory)| is_alive(*server) && directory.exists());
    kill(&mut victim);
    victim.wait().unwrap();
    assert!(alive, "no server was started");
    let (server, directory) = server.unwrap();
    for _ in 0..1000 {
        if !is_alive(server) && !directory.exists() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("server {server} or {} is still there", directory.display());
}

fn read_server(output: ChildStdout) -> Option<(u32, PathBuf)> {
    BufReader::new(output).lines().map_while(Result::ok).find_map(|line| {
        let (pid, directory) = line.strip_prefix("server ")?.split_once(' ')?;
        Some((pid.parse().ok()?, PathBuf::from(directory)))
    })
}

/// Nobody may be there to bury it, so that a dead process can stay in the table.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn kill(victim: &mut Child) {
    victim.kill().unwrap();
}

/// As test runners do.
fn kill_group(victim: &mut Child, signal: Signal) {
    killpg(Pid::from_raw(i32::try_from(victim.id()).unwrap()), signal).unwrap();
}

#[test]
fn a_running_server_dies_with_its_owner() {
    check("running", kill);
}

#[test]
fn a_paused_server_dies_with_its_owner() {
    check("paused", kill);
}

#[test]
fn a_restarted_server_dies_with_its_owner() {
    check("restarted", kill);
}

#[test]
fn a_paused_server_dies_when_the_whole_group_of_its_owner_is_killed() {
    check("paused", |victim| kill_group(victim, Signal::SIGKILL));
}

#[test]
fn a_paused_server_dies_when_the_whole_group_of_its_owner_is_told_to_end() {
    check("paused", |victim| kill_group(victim, Signal::SIGTERM));
}
