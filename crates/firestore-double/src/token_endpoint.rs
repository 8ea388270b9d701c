//! Where service accounts get their tokens: the part of Google's OAuth server that a client library
//! needs, over plain HTTP.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tonic::Status;

use crate::faults::Moment;
use crate::server::{Call, Server};

/// What faults call a request here.
const NAME: &str = "Token";

/// No request of a client library is longer.
const LONGEST_REQUEST: u64 = 1 << 16;

/// Answers until the end of the process.
pub(crate) async fn serve(server: Arc<Server>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // A client that breaks off loses nothing but its own answer.
            let _ = answer(&server, stream).await;
        });
    }
}

/// One request for each connection.
async fn answer(server: &Server, stream: TcpStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (first_line, body) = read_request(&mut stream).await?;
    let is_known = first_line.starts_with("POST /token ");
    server.engine.state().counts.add_call(NAME);
    let call = Call { method: NAME, request: body.as_bytes(), connection: None };
    let result = match server.fault(&call, Moment::Before).await {
        Ok(()) if is_known => issue(server, &body),
        Ok(()) => Err(("404 Not Found", json!({"error": "not_found"}))),
        Err(status) => Err(unavailable(&status)),
    };
    let (status, json) = match result {
        Ok(token) => match server.fault(&call, Moment::After).await {
            Ok(()) => ("200 OK", json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})),
            Err(status) => unavailable(&status),
        },
        Err(answer) => answer,
    };
    let json = json.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        json.len()
    );
    stream.write_all(format!("{head}{json}").as_bytes()).await?;
    stream.shutdown().await
}

/// The first line, and the body.
async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<(String, String)> {
    let mut stream = stream.take(LONGEST_REQUEST);
    let mut first_line = String::new();
    stream.read_line(&mut first_line).await?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = String::new();
    stream.take(length).read_to_string(&mut body).await?;
    Ok((first_line, body))
}

fn issue(server: &Server, body: &str) -> Result<String, (&'static str, Json)> {
    let refused = || ("401 Unauthorized", json!({"error": "invalid_grant", "error_description": "Invalid grant"}));
    let account = issuer(body).ok_or_else(refused)?;
    server.access.issue(&account).ok_or_else(refused)
}

/// Who asks, by the claims of the token in the form. Nobody looks at its signature.
fn issuer(body: &str) -> Option<String> {
    let assertion = body.split('&').find_map(|pair| pair.strip_prefix("assertion="))?;
    // Padded, and escaped in the form, or not.
    let claims = assertion.split('.').nth(1)?.trim_end_matches("%3D").trim_end_matches('=');
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Json = serde_json::from_slice(&claims).ok()?;
    Some(claims.get("iss")?.as_str()?.to_owned())
}

fn unavailable(status: &Status) -> (&'static str, Json) {
    ("503 Service Unavailable", json!({"error": "unavailable", "error_description": status.message()}))
}
