use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads process ids until the pipe ends, which it does when this process lets go of it or is gone,
/// however it went. Then kills the last one, its children and its group, and removes the directory.
/// An empty line stands for no process.
///
/// The children are for PostgreSQL: they leave the group, and a paused one would not notice that
/// its parent is dead. So is the shared memory, which the kernel keeps until it is removed, and of
/// which it keeps only so many pieces: their number is the second in the seventh line of the
/// server's own note.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
directory=$1
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
  kill -s STOP -- "-$pid"
  for process in /proc/[0-9]*; do
    { read -r stat <"$process/stat"; } || continue
    set -- ${stat##*) }
    if [ "$2" = "$pid" ]; then kill -s KILL "${process#/proc/}"; fi
  done
  kill -s KILL -- "-$pid"
fi
note=$directory/data/postmaster.pid
if [ -f "$note" ]; then
  { for i in 1 2 3 4 5 6; do read -r line; done; read -r key memory; } <"$note"
  if [ -n "$memory" ]; then ipcrm -m "$memory"; fi
fi
rm -rf -- "$directory" || { sleep 1; rm -rf -- "$directory"; }
"#;

/// A shell that outlives this process by an instant, to kill the server that it left behind.
///
/// A test runner that has waited for long enough kills the test, and no destructor runs. The
/// kernel's own way to tie a child to its parent ties it to the *thread* that started it, which for
/// a test may end long before the test does.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Keeps watch over a server yet to be started in this directory.
    pub(crate) fn start(directory: &Path) -> io::Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(directory)
            // A group of its own, so that what ends the test's group does not end the watchdog
            // first.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell })
    }

    /// From now on this process dies with us, with its children and its group.
    pub(crate) fn guard(&mut self, pid: u32) -> io::Result<()> {
        self.tell(pid)
    }

    /// The server is dead: its process id may soon be somebody else's.
    pub(crate) fn stand_down(&mut self) -> io::Result<()> {
        self.tell("")
    }

    fn tell(&mut self, line: impl Display) -> io::Result<()> {
        let Some(pipe) = self.shell.stdin.as_mut() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        // One write, so that the shell never sees half a number.
        pipe.write_all(format!("{line}\n").as_bytes())
    }

    #[cfg(test)]
    pub(crate) fn pid(&self) -> u32 {
        self.shell.id()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Waiting closes the pipe first.
        let _ = self.shell.wait();
    }
}
