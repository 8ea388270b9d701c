//! Where it was measured.

use std::process::Command;

/// The machine and its software, a line each.
pub fn describe() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once([':', '=']).map(|(_, value)| value.trim().trim_matches('"').to_owned()).unwrap_or_default()
    };
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    vec![
        format!("{count} processors ({}), {} GB of memory", field(&cpus, "model name"), memory.div_ceil(1024 * 1024)),
        format!(
            "{}, Linux {}",
            field(&read("/etc/os-release"), "PRETTY_NAME"),
            read("/proc/sys/kernel/osrelease").trim()
        ),
        format!("{}, profile `bench`", said("rustc", &["--version"])),
        format!("load when it began: {load}"),
    ]
}

/// Today, in UTC.
pub fn date() -> String {
    said("date", &["--utc", "+%Y-%m-%d"])
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
