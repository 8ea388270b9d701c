//! Firestore: a stand-in for it, which keeps the promises of its documentation.

mod answers;
mod builder;
mod commands;
mod control;
mod fault;
mod program;
mod service_account;

use std::ops::Deref;
use std::path::PathBuf;

pub use answers::{FirestoreCounts, FirestoreDocument};
pub use builder::FirestoreBuilder;
pub use fault::FirestoreFault;
pub use service_account::FirestoreRole;

use crate::certificates::Certificates;
use crate::port::Port;
use crate::server::{Server, expect};

/// One private stand-in for Firestore, killed and forgotten when it is dropped. As every [`Server`]
/// it can be stopped, killed, paused and restarted.
///
/// Documents are named by their path in the one database of the [`project`](Self::project), such as
/// `locks/one`.
#[derive(Debug)]
pub struct Firestore {
    server: Server,
    project: String,
    token_port: Option<Port>,
    certificates: Option<Certificates>,
}

impl Firestore {
    /// Starts a server that keeps everything in memory and lets everybody in, as an emulator does.
    /// When this returns it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be built, or does not answer in time; the message has the end of its log.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts saying what the server is to be like.
    pub fn builder() -> FirestoreBuilder {
        FirestoreBuilder::default()
    }

    /// The project, whose name no other server has.
    #[must_use]
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The id of the database.
    #[must_use]
    pub fn database(&self) -> &'static str {
        "(default)"
    }

    /// The name below which all documents are.
    #[must_use]
    pub fn root(&self) -> String {
        format!("projects/{}/databases/{}/documents", self.project, self.database())
    }

    /// `firestore://PROJECT?emulator=127.0.0.1:PORT`, or for a server that speaks TLS or demands
    /// credentials `firestore://PROJECT?endpoint=127.0.0.1:PORT&ca=FILE&credentials=FILE`, with the
    /// credentials of one who may write.
    ///
    /// # Panics
    ///
    /// If the credentials cannot be written.
    #[must_use]
    #[track_caller]
    pub fn url(&self) -> String {
        self.url_for(FirestoreRole::Writer)
    }

    /// As [`url`](Self::url), with the credentials of somebody else, if any are needed.
    ///
    /// # Panics
    ///
    /// If the credentials cannot be written.
    #[must_use]
    #[track_caller]
    pub fn url_for(&self, role: FirestoreRole) -> String {
        let (project, address) = (&self.project, self.address());
        if !self.speaks_tls() && !self.demands_credentials() {
            return format!("firestore://{project}?emulator={address}");
        }
        let mut url = format!("firestore://{project}?endpoint={address}");
        if self.speaks_tls() {
            url += &format!("&ca={}", self.ca_file().display());
        }
        if self.demands_credentials() {
            url += &format!("&credentials={}", self.service_account(role).display());
        }
        url
    }

    /// Whether the server was asked to speak TLS. It then speaks nothing else.
    #[must_use]
    pub fn speaks_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// Whether the server was asked to let in only those with credentials.
    #[must_use]
    pub fn demands_credentials(&self) -> bool {
        self.token_port.is_some()
    }

    /// The certificate of the authority that a client has to trust.
    ///
    /// # Panics
    ///
    /// If the server was not asked to speak TLS.
    #[must_use]
    #[track_caller]
    pub fn ca_file(&self) -> PathBuf {
        let certificates = self.certificates.as_ref();
        certificates.unwrap_or_else(|| panic!("this server was not asked to speak TLS")).ca_file()
    }

    /// The key file of a service account with this role, as Google's console hands them out.
    ///
    /// # Panics
    ///
    /// If the server was not asked to demand credentials, or the file cannot be written.
    #[must_use]
    #[track_caller]
    pub fn service_account(&self, role: FirestoreRole) -> PathBuf {
        let Some(port) = &self.token_port else { panic!("this server was not asked to demand credentials") };
        expect("service account", service_account::write(self.directory(), &self.project, port.number(), role))
    }
}

impl Deref for Firestore {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
