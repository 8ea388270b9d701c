use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

/// Made for this purpose and known to everybody: the server does not look at signatures.
const PRIVATE_KEY: &str = include_str!("service_account.pem");

/// What a service account of a [`Firestore`](crate::Firestore) may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirestoreRole {
    /// Everything.
    Writer,
    /// Nothing but read.
    Reader,
    /// Nothing, though it is known.
    Nobody,
    /// Get no token at all.
    Stranger,
}

impl FirestoreRole {
    fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Nobody => "nobody",
            Self::Stranger => "stranger",
        }
    }
}

/// Writes the key file of an account, and returns where it is.
pub(super) fn write(directory: &Path, project: &str, token_port: u16, role: FirestoreRole) -> io::Result<PathBuf> {
    let name = role.name();
    let path = directory.join(name).with_extension("json");
    let account = json!({
        "type": "service_account",
        "project_id": project,
        "private_key_id": "0000000000000000000000000000000000000000",
        "private_key": PRIVATE_KEY,
        "client_email": format!("{name}@{project}.iam.gserviceaccount.com"),
        "client_id": "100000000000000000000",
        "token_uri": format!("http://127.0.0.1:{token_port}/token"),
    });
    fs::write(&path, account.to_string())?;
    Ok(path)
}
