//! The memory that the processes of a PostgreSQL server share, which the kernel keeps until
//! somebody removes it.

use std::path::Path;

/// The number of the piece of memory of the server that runs in `directory`, by its own note.
pub(crate) fn shared_memory(directory: &Path) -> Option<String> {
    let note = std::fs::read_to_string(directory.join("data/postmaster.pid")).ok()?;
    note.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned)
}

pub(crate) fn has_shared_memory(number: &str) -> bool {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    all.lines().any(|piece| piece.split_whitespace().nth(1) == Some(number))
}
