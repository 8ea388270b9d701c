use crate::Error;

/// The process in which something was made. A fork copies a program's memory, but neither its
/// threads nor its locks: the copy of a handle has no keeper, shares its connections with the
/// parent, and must touch nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether this is still that process, and not a fork of it. One system call.
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }

    /// # Errors
    ///
    /// `InvalidArgument` in a fork of that process.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(forked()) }
    }
}

fn forked() -> Error {
    Error::invalid("the handle was made before this process was forked, and belongs to its parent")
        .with_hint("connect in the child: a handle does not survive a fork")
}
