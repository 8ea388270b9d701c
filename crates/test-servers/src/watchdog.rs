use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads process ids until the pipe ends, which it does when this process lets go of it or is gone, however it went.
/// Then kills the group of the last one, and removes the directory. An empty line stands for no process.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then kill -s KILL -- "-$pid"; fi
rm -rf -- "$1"
"#;

/// A shell that outlives this process by an instant, to kill the server that it left behind.
///
/// A test runner that loses its patience kills the test, and no destructor runs. The kernel's own way to tie a child to
/// its parent ties it to the *thread* that started it, which for a test may end long before the test does.
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
            // A group of its own, so that what ends the test's group does not end the watchdog first.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell })
    }

    /// From now on this process group dies with us.
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
