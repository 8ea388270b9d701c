use forkguard::Guard;

use crate::Error;

/// The process in which something was made. A fork copies a program's memory, but neither its
/// threads nor its locks: the copy of a handle has no keeper, shares its connections with the
/// parent, and must touch nothing.
///
/// `fork(2)` itself counts forks. To ask for the process id instead is a system call, which can
/// cost more than to take a lock in memory.
#[derive(Clone, Debug)]
pub(crate) struct Process(Option<Guard>);

impl Process {
    pub(crate) fn current() -> Self {
        // Without memory for it, forks go unnoticed.
        Self(Guard::try_new().ok())
    }

    /// Whether this is still that process, and not a fork of it.
    pub(crate) fn is_current(&self) -> bool {
        self.0.as_ref().is_none_or(|guard| !guard.clone().detected_fork())
    }

    /// # Errors
    ///
    /// `InvalidArgument` in a fork of that process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(forked()) }
    }
}

fn forked() -> Error {
    Error::invalid("the handle was made before this process was forked, and belongs to its parent")
        .with_hint("connect in the child: a handle does not survive a fork")
}
