//! The processes below us, wherever they hide: a process that starts a session or a group of its
//! own stays our descendant, because orphans among our descendants become our children.

use rustix::process::Pid;

/// A process, by the numbers that it has for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) group: i32,
    pub(super) state: State,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// A signal has stopped it.
    Stopped,
    /// It has ended, and only waits for its parent to notice.
    Ended,
}

/// Makes orphans among our descendants our children.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() {
    // A system without it (older than Linux 3.4) finds fewer descendants; the group is still there.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() {}

/// All that descend from us and have not ended. Empty where there is no `/proc`.
pub(super) fn descendants() -> Vec<Process> {
    let Some((ourselves, names)) = ourselves() else { return Vec::new() };
    let all = entries();
    let mut ancestors = vec![ourselves];
    let mut found = Vec::new();
    while let Some(ancestor) = ancestors.pop() {
        for entry in all.iter().filter(|entry| entry.parent == ancestor) {
            ancestors.push(entry.pid);
            if entry.state != State::Ended {
                found.extend(names.process(entry));
            }
        }
    }
    found
}

/// Whether there is a `/proc` that knows us.
#[cfg(target_os = "linux")]
pub(crate) fn can_be_found() -> bool {
    ourselves().is_some()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn can_be_found() -> bool {
    true
}

/// Our number in `/proc`, and what the numbers there are for us.
fn ourselves() -> Option<(i32, Names)> {
    let number: i32 = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
    if number == rustix::process::getpid().as_raw_nonzero().get() {
        return Some((number, Names::Same));
    }
    let depth = numbers(&std::fs::read_to_string("/proc/self/status").ok()?, "NSpid:").len();
    Some((number, Names::Below { depth: depth.checked_sub(1)? }))
}

/// What the numbers in `/proc` are for us.
enum Names {
    Same,
    /// We are in a namespace for processes, but `/proc` is from outside. It has a list of all
    /// numbers of a process, the outermost first, and ours are at `depth`.
    Below {
        depth: usize,
    },
}

impl Names {
    fn process(&self, entry: &Entry) -> Option<Process> {
        let (pid, group) = match self {
            Names::Same => (entry.pid, entry.group),
            Names::Below { depth } => {
                let status = std::fs::read_to_string(format!("/proc/{}/status", entry.pid)).ok()?;
                let ours = |name| numbers(&status, name).get(*depth).copied();
                (ours("NSpid:")?, ours("NSpgid:")?)
            }
        };
        Some(Process { pid: Pid::from_raw(pid)?, group, state: entry.state })
    }
}

fn numbers(status: &str, name: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A process as it stands in `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    parent: i32,
    group: i32,
    state: State,
}

/// Every process.
fn entries() -> Vec<Entry> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// `pid (name) state parent group …`, where the name may contain anything.
fn parse(stat: &str) -> Option<Entry> {
    let (start, rest) = stat.rsplit_once(')')?;
    let pid = start.split_once(' ')?.0.parse().ok()?;
    let mut fields = rest.split_whitespace();
    let state = match fields.next()? {
        "Z" | "X" => State::Ended,
        "T" => State::Stopped,
        _ => State::Running,
    };
    Some(Entry { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_spaces_and_brackets() {
        let entry = parse("42 (a) b) (c) S 7 40 40 0 -1").unwrap();
        assert_eq!(entry, Entry { pid: 42, parent: 7, group: 40, state: State::Running });
        assert_eq!(parse("42 (a) Z 7 40 40").unwrap().state, State::Ended);
        assert_eq!(parse("42 (a) T 7 40 40").unwrap().state, State::Stopped);
        assert!(parse("nonsense").is_none());
    }

    #[test]
    fn numbers_of_all_namespaces_are_read() {
        assert_eq!(numbers("Pid:\t9\nNSpid:\t900\t9\nNSpgid:\t800\t8\n", "NSpgid:"), [800, 8]);
    }
}
