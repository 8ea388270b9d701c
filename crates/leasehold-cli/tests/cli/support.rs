use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use test_servers::eventually;
use test_support::RunningStore;

use crate::Store;

/// A directory to work in, and a store of its own.
pub(crate) struct Place {
    directory: TempDir,
    store: Arc<dyn RunningStore>,
}

impl Place {
    pub(crate) fn new(store: Store) -> Self {
        Self::on(store.start())
    }

    pub(crate) fn on(store: Arc<dyn RunningStore>) -> Self {
        Self { directory: TempDir::new().unwrap(), store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        self.store.url()
    }

    /// The store without credentials.
    pub(crate) fn public_store(&self) -> String {
        self.store.public_url()
    }

    /// The command, in this directory and on this store, with nothing else in its environment that
    /// it could heed.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(arguments).current_dir(self.directory.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
            command.env_remove(name);
        }
        command.env("LEASEHOLD_STORE", self.store()).stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Done {
        Done::from(self.leasehold(arguments).output().unwrap())
    }

    /// Starts the command. What it says goes to files.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Started {
        Started::new(&mut self.leasehold(arguments), self)
    }

    /// Runs `script` as root of a world where it may mount file systems, with `$LEASEHOLD` and a
    /// directory `disk`, on which the store will be.
    pub(crate) fn with_mounts(&self, script: &str) -> Child {
        fs::create_dir(self.path("disk")).unwrap();
        let leasehold = self.leasehold([""; 0]).get_program().to_owned();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-e", "-c", script]);
        command.env("LEASEHOLD", leasehold).env("LEASEHOLD_STORE", "sqlite:disk/locks.db");
        command.current_dir(self.directory.path()).spawn().expect("these tests need the program `unshare`")
    }

    /// Writes a script for `sh`.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has a first line, and returns it.
    pub(crate) fn first_line(&self, name: &str) -> String {
        eventually(&format!("{name} has a line"), || self.read(name).contains('\n'));
        self.read(name).lines().next().unwrap().to_owned()
    }

    /// Waits until a script has written its process id to a file, and returns it.
    pub(crate) fn pid(&self, name: &str) -> u32 {
        self.first_line(name).parse().unwrap()
    }

    /// The names of those who stand in line for `key`, in order.
    pub(crate) fn line(&self, key: &str) -> Vec<String> {
        let shown = self.run(["show", "--json", key]).stdout;
        let shown: Value = if shown.is_empty() { Value::Null } else { serde_json::from_str(&shown).unwrap() };
        let waiters = shown["waiters"].as_array().cloned().unwrap_or_default();
        waiters.iter().map(|waiter| waiter["holder"].as_str().unwrap_or("-").to_owned()).collect()
    }

    /// Whether somebody holds `key`.
    pub(crate) fn is_held(&self, key: &str) -> bool {
        self.run(["show", key]).code == 0
    }
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// As shells show it: 128+N if it was ended by signal N.
    pub(crate) code: i32,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    fn new(status: ExitStatus, stdout: String, stderr: String) -> Self {
        let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap();
        Self { code, signal: status.signal(), stdout, stderr }
    }

    /// The events of `--json` on stderr, which the command may have written to as well.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.stderr.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    pub(crate) fn event_names(&self) -> Vec<String> {
        self.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self::new(output.status, String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// A command that runs. Killed if it still does at the end of the test.
pub(crate) struct Started {
    child: Child,
    files: (PathBuf, PathBuf),
}

impl Started {
    pub(crate) fn new(command: &mut Command, place: &Place) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let files = (place.path(&format!("stdout-{number}")), place.path(&format!("stderr-{number}")));
        let file = |path: &Path| fs::File::create_new(path).unwrap();
        let child = command.stdout(file(&files.0)).stderr(file(&files.1)).spawn().unwrap();
        Self { child, files }
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.files.0).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.files.1).unwrap()
    }

    /// The most memory it has had so far, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the command alone.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub(crate) fn wait_for_stderr(&self, text: &str) {
        eventually(&format!("stderr says {text:?}"), || self.stderr().contains(text));
    }

    /// Waits for the end.
    pub(crate) fn done(mut self) -> Done {
        eventually("the command ends", || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        let [stdout, stderr] = [&self.files.0, &self.files.1].map(|path| fs::read_to_string(path).unwrap());
        Done::new(status, stdout, stderr)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that the test has started.
pub(crate) fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args(["-s", name, "--", &pid.to_string()]).status().unwrap();
    assert!(done.success(), "cannot send {name} to {pid}");
}
