use std::io::{Seek, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, io};

/// What the connections of this crate call themselves, so that they can be told from those of the
/// tests.
pub(super) const APPLICATION: &str = "test-servers";

/// How to reach a server with `psql`, through its Unix socket.
#[derive(Clone, Debug)]
pub(crate) struct Psql {
    pub(crate) program: PathBuf,
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
}

impl Psql {
    /// Runs SQL, statement by statement, and returns what it prints: values between bars, rows on
    /// lines. If a statement fails, the ones after it are not run, and the error is what `psql`
    /// complains of.
    pub(crate) fn run(&self, user: &str, database: &str, arguments: &[&str], sql: &str) -> Result<String, String> {
        self.try_run(user, database, arguments, sql).unwrap_or_else(|error| Err(format!("psql: {error}")))
    }

    fn try_run(&self, user: &str, database: &str, arguments: &[&str], sql: &str) -> io::Result<Result<String, String>> {
        // A file, as both ends of a pipe can block.
        let mut input = tempfile::tempfile()?;
        input.write_all(sql.as_bytes())?;
        input.rewind()?;
        let mut command = Command::new(&self.program);
        // Not the settings of whoever runs the tests.
        for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.args(["-X", "-A", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-U", user, "-d", database]);
        command.arg("-h").arg(&self.socket_dir).args(["-p", &self.port.to_string()]).args(arguments);
        command.env("PGCONNECT_TIMEOUT", "10").env("PGAPPNAME", APPLICATION);
        let output = command.stdin(Stdio::from(input)).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }
}
