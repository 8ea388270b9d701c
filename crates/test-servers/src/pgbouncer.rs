use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::port::Port;
use crate::postgres::{Postgres, Psql};
use crate::server::{Kind, Server, start_on_a_free_port};

/// Where Debian puts it, which is not on the path of everybody.
const DEBIAN: &str = "/usr/sbin/pgbouncer";

/// The superuser of the server is the one who may ask PgBouncer about itself.
const ADMINISTRATOR: &str = "postgres";

/// Startup parameters that clients send and PgBouncer would refuse.
const IGNORED: &str = "extra_float_digits,options,search_path,statement_timeout,lock_timeout,\
    idle_in_transaction_session_timeout,geqo";

/// One private PgBouncer in front of a [`Postgres`], killed and forgotten when it is dropped. As
/// every [`Server`] it can be stopped, killed, paused and restarted.
///
/// It lets everybody in who is a user of the server, without a password, and shows them to the
/// server as who they are.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
    psql: Psql,
}

/// Says what a [`PgBouncer`] is to be like before it is started.
#[derive(Debug)]
#[must_use = "nothing runs until it is started"]
pub struct PgBouncerBuilder {
    psql: Psql,
    account: Account,
    settings: Vec<(String, String)>,
}

impl PgBouncerBuilder {
    /// Adds a setting, such as `("query_wait_timeout", "1")`. A later setting overrides an earlier
    /// one.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How many connections each user gets to each database of the server; 2 unless told.
    pub fn pool_size(self, size: u16) -> Self {
        self.setting("default_pool_size", &size.to_string())
    }

    /// Starts it. When this returns it takes connections.
    ///
    /// # Panics
    ///
    /// If PgBouncer is not installed, or does not start in time; the message has the end of its
    /// log.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> PgBouncer {
        start_on_a_free_port(|| self.try_start())
    }

    fn try_start(&self) -> io::Result<PgBouncer> {
        let directory = TempDir::with_prefix("test-servers-pgbouncer-")?;
        let port = Port::reserve()?;
        let psql = Psql { socket_dir: directory.path().to_owned(), port: port.number(), ..self.psql.clone() };
        fs::write(directory.path().join("users.txt"), format!("\"{ADMINISTRATOR}\" \"\"\n"))?;
        fs::write(directory.path().join("pgbouncer.ini"), self.configuration(&psql))?;
        for path in ["", "users.txt", "pgbouncer.ini"] {
            self.account.own(&directory.path().join(path))?;
        }

        let mut command = Command::new(find_program()?);
        command.arg("pgbouncer.ini");
        self.account.run(&mut command);
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let is_ready = Box::new(move |_| TcpStream::connect(address).is_ok());
        // By any other signal some versions wait for their clients to leave.
        let kind = Kind { command, package: "pgbouncer", stop_signal: Signal::SIGQUIT, is_ready };
        let server = Server::new(kind, directory, port)?;
        server.start()?;
        Ok(PgBouncer { server, psql })
    }

    fn configuration(&self, own: &Psql) -> String {
        let mut lines = format!(
            "[databases]\n* = host={} port={} auth_user={ADMINISTRATOR}\n\
            [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir = {}\n\
            auth_type = trust\nauth_file = users.txt\nadmin_users = {ADMINISTRATOR}\n\
            default_pool_size = 2\nmax_client_conn = 200\nignore_startup_parameters = {IGNORED}\n",
            self.psql.socket_dir.display(),
            self.psql.port,
            own.port,
            own.socket_dir.display(),
        );
        for (name, value) in &self.settings {
            lines += &format!("{name} = {value}\n");
        }
        lines
    }
}

impl PgBouncer {
    /// Starts a PgBouncer in front of a server, with pools of two connections. The mode is
    /// `session`, `transaction` or `statement`. When this returns it takes connections.
    ///
    /// # Panics
    ///
    /// If PgBouncer is not installed, or does not start in time; the message has the end of its
    /// log.
    #[must_use]
    #[track_caller]
    pub fn start(postgres: &Postgres, pool_mode: &str) -> Self {
        Self::builder(postgres, pool_mode).start()
    }

    /// Starts saying what it is to be like.
    pub fn builder(postgres: &Postgres, pool_mode: &str) -> PgBouncerBuilder {
        let (psql, account) = (postgres.psql().clone(), postgres.account().clone());
        PgBouncerBuilder { psql, account, settings: Vec::new() }.setting("pool_mode", pool_mode)
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`: the superuser's.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_as(ADMINISTRATOR)
    }

    /// The URL for another user of the server.
    #[must_use]
    pub fn url_as(&self, user: &str) -> String {
        format!("postgres://{user}@{}/postgres", self.address())
    }

    /// What it shows about itself, such as `pools`, `servers` or `clients`: a row each, its values
    /// by the names of the columns.
    ///
    /// # Panics
    ///
    /// If it cannot be reached, or does not know what is asked for.
    #[must_use]
    #[track_caller]
    pub fn show(&self, what: &str) -> Vec<BTreeMap<String, String>> {
        let table = self.administer(&format!("SHOW {what}"));
        let mut rows = table.lines().map(|line| line.split('|').map(str::to_owned));
        let names: Vec<_> = rows.next().into_iter().flatten().collect();
        rows.map(|values| names.iter().cloned().zip(values).collect()).collect()
    }

    /// Gives it an order, such as `PAUSE`, `RESUME` or `RECONNECT`, and returns what it prints.
    ///
    /// # Panics
    ///
    /// If it cannot be reached or refuses.
    #[track_caller]
    pub fn administer(&self, order: &str) -> String {
        let result = self.psql.run(ADMINISTRATOR, "pgbouncer", &["-P", "footer=off"], order);
        result.unwrap_or_else(|error| panic!("{order}: {error}"))
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Looks for itself: the account that is to run it may not even see all of our path, and would
/// complain of that.
fn find_program() -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|directory| directory.join("pgbouncer"));
    [PathBuf::from(DEBIAN)]
        .into_iter()
        .chain(on_path)
        .find(|program| program.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "pgbouncer is not installed: apt-get install pgbouncer"))
}
