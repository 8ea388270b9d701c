//! How tests look into the server and break it: one JSON object in a line, one in answer.

mod commands;
mod fault;

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

pub(crate) use commands::run;

use crate::server::Server;

/// Opens the socket, instead of one that an earlier process has left.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Answers until the end of the process.
pub(crate) async fn serve(server: Arc<Server>, listener: UnixListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // Whoever breaks off need not be told.
            let _ = converse(&server, stream).await;
        });
    }
}

async fn converse(server: &Server, stream: UnixStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let result = match serde_json::from_str::<Json>(&line) {
            Ok(request) => run(server, &request).await,
            Err(error) => Err(error.to_string()),
        };
        let answer = match result {
            Ok(answer) => json!({"ok": answer}),
            Err(error) => json!({"error": error}),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        line.clear();
    }
    Ok(())
}
