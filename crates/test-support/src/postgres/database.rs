use std::sync::{Arc, Mutex, PoisonError, Weak};

use test_servers::Postgres;

use super::migrate;
use crate::stores::RunningStore;

/// A database of its own with tables, in a server that others in this process use as well. It ends
/// with it.
#[derive(Debug)]
pub struct Database {
    server: Arc<Postgres>,
    name: String,
}

impl Database {
    /// Makes one, in the server of all that are there at present.
    pub fn new() -> Self {
        let server = shared_server();
        let name = format!("test_{:016x}", fastrand::u64(..));
        server.sql(&format!("CREATE DATABASE {name} TEMPLATE template0"));
        let database = Self { server, name };
        migrate(&RunningStore::url(&database));
        database
    }

    pub(crate) fn share() -> Arc<dyn RunningStore> {
        Arc::new(Self::new())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is in.
    pub fn server(&self) -> &Arc<Postgres> {
        &self.server
    }
}

impl RunningStore for Database {
    fn url(&self) -> String {
        format!("postgres://postgres@{}/{}", self.server.address(), self.name)
    }
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Whoever is still connected is a test that has ended.
        let _ = self.server.try_sql(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

fn shared_server() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Postgres::with(&[("max_connections", "400"), ("fsync", "off")]);
        let server = Arc::new(server);
        *shared = Arc::downgrade(&server);
        server
    })
}
