use std::fs;

/// The kernel's letter for what a process does: `T` is stopped, `Z` is dead and waits to be buried.
pub(crate) fn state(pid: u32) -> Option<char> {
    Some(stat(pid)?.0)
}

/// Whether a process has not ended. One that nobody has waited for yet has.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    !is_dead(pid)
}

/// Whether a process is dead, buried or not.
pub(crate) fn is_dead(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// The children of a process, their children and so on. PostgreSQL's leave the process group of
/// their parent, so that only this way leads to them. It ends with a parent's death: look first,
/// kill then.
pub(crate) fn descendants(ancestor: u32) -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, its_parent)| *its_parent == parent).map(|(pid, _)| pid));
        next += 1;
    }
    found.split_off(1)
}

/// What a process does, and its parent.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it, in parentheses, may itself contain some.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn grandchildren_are_found_until_they_are_dead() {
        let mut child = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        crate::deadline::eventually("a grandchild", || !descendants(child.id()).is_empty());
        let grandchildren = descendants(child.id());
        assert_eq!(grandchildren.len(), 1);
        assert!(descendants(std::process::id()).contains(&grandchildren[0]));
        let grandchild = nix::unistd::Pid::from_raw(i32::try_from(grandchildren[0]).unwrap());
        nix::sys::signal::kill(grandchild, nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(is_dead(grandchildren[0]) && is_dead(child.id()));
    }
}
