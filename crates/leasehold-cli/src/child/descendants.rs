//! The processes below us, wherever they hide: a process that starts a session or a group of its
//! own stays our descendant, because orphans among our descendants become our children.

use rustix::process::Pid;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: i32,
    pub(super) group: i32,
    /// It has ended, and only waits for its parent to notice.
    ended: bool,
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
    let all = processes();
    let mut ancestors = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(ancestor) = ancestors.pop() {
        for process in all.iter().filter(|process| process.parent == ancestor) {
            ancestors.push(process.pid.as_raw_nonzero().get());
            if !process.ended {
                found.push(*process);
            }
        }
    }
    found
}

/// Every process.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// `pid (name) state parent group …`, where the name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (start, rest) = stat.rsplit_once(')')?;
    let pid = Pid::from_raw(start.split_once(' ')?.0.parse().ok()?)?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, group, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_spaces_and_brackets() {
        let process = parse("42 (a) b) (c) S 7 40 40 0 -1").unwrap();
        let Process { pid, parent, group, ended } = process;
        assert_eq!((pid.as_raw_nonzero().get(), parent, group, ended), (42, 7, 40, false));
        assert!(parse("42 (a) Z 7 40 40").unwrap().ended);
        assert!(parse("nonsense").is_none());
    }
}
