use std::fs::{self, File};
use std::io::{self, Write};
use std::process::Command;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::psql::Psql;
use super::{Postgres, is_ready, programs, template};
use crate::account::Account;
use crate::certificates::Certificates;
use crate::port::Port;
use crate::server::{Kind, Server, start_on_a_free_port};

/// Says what a [`Postgres`] is to be like before it is started.
///
/// As it is, it believes everybody to be who they say they are, and listens on a port of 127.0.0.1
/// and a Unix socket.
#[derive(Debug, Default)]
#[must_use = "nothing runs until it is started"]
pub struct PostgresBuilder {
    settings: Vec<(String, String)>,
    password: Option<String>,
    certificates: Option<Certificates>,
}

impl PostgresBuilder {
    /// Adds a setting, such as `("max_connections", "5")`. A later setting overrides an earlier
    /// one, and `ALTER SYSTEM` overrides them all.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Demands a password of whoever comes by TCP, as SCRAM has it. This one is the superuser's. It
    /// becomes part of [`Postgres::url`], so it must not need escaping there. The Unix socket
    /// demands none.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Also speaks TLS on its port, with [`Certificates`] of its own.
    pub fn tls(mut self) -> Self {
        self.certificates = Some(Certificates::generate());
        self.setting("ssl", "on").setting("ssl_cert_file", "../server.crt").setting("ssl_key_file", "../server.key")
    }

    /// Starts the server. When this returns it takes connections.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, or does not start in time; the message has the end of its
    /// log.
    #[must_use]
    #[track_caller]
    pub fn start(mut self) -> Postgres {
        start_on_a_free_port(|| self.try_start())
    }

    fn try_start(&mut self) -> io::Result<Postgres> {
        let programs = programs::find()?;
        let account = Account::unprivileged()?;
        let directory = TempDir::with_prefix("test-servers-postgres-")?;
        let port = Port::reserve()?;
        let socket_dir = directory.path().to_owned();
        let data = socket_dir.join("data");

        let mut command = Command::new(programs.join("postgres"));
        command.arg("-D").arg(&data);
        account.run(&mut command);
        let kind = Kind {
            command,
            package: "postgresql",
            stop_signal: Signal::SIGINT,
            is_ready: Box::new({
                let data = data.clone();
                move |pid| is_ready(&data, pid)
            }),
        };
        let number = port.number();
        // First of all, so that nothing remains if we are killed on the way.
        let server = Server::new(kind, directory, port)?;
        account.own(&socket_dir)?;
        template::unpack(&programs, &account, &data)?;
        if let Some(certificates) = &self.certificates {
            account.copy(&certificates.server_cert(), &socket_dir.join("server.crt"))?;
            account.copy(&certificates.server_key(), &socket_dir.join("server.key"))?;
        }
        let mut settings = File::options().append(true).open(data.join("postgresql.conf"))?;
        settings.write_all(self.configuration(number, &socket_dir.to_string_lossy()).as_bytes())?;
        let tcp = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        fs::write(data.join("pg_hba.conf"), format!("local all all trust\nhost all all 127.0.0.1/32 {tcp}\n"))?;

        server.start()?;
        let psql = Psql { program: programs.join("psql"), socket_dir, port: number };
        let mut postgres = Postgres { server, psql, account, password: self.password.clone(), certificates: None };
        if let Some(password) = &self.password {
            let order = format!("ALTER ROLE postgres PASSWORD '{}'", password.replace('\'', "''"));
            postgres.try_sql(&order).map_err(io::Error::other)?;
        }
        postgres.certificates = self.certificates.take();
        Ok(postgres)
    }

    fn configuration(&self, port: u16, socket_dir: &str) -> String {
        let ours = [("port", port.to_string()), ("unix_socket_directories", socket_dir.to_owned())];
        let ours = ours.iter().map(|(name, value)| (*name, value.as_str()));
        let theirs = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let lines = ours.chain(theirs).map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")));
        lines.collect()
    }
}
