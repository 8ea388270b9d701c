//! Who hands out tokens for servers that look at none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;

const TOKEN: &str = r#"{"access_token":"token","expires_in":3600,"token_type":"Bearer"}"#;

/// The one token server of this process, which takes everybody for whoever they say.
pub(super) fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the process.
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(&stream)));
        address
    })
}

/// One request for each connection. Whoever breaks off needs no answer.
fn answer(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((_, value)) = line.to_ascii_lowercase().split_once("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let _ = reader.take(length).read_to_end(&mut Vec::new());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let mut stream = stream;
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{TOKEN}", TOKEN.len());
}
