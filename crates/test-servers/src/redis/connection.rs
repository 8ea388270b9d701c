use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The least that it takes to talk to a Redis server.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Error(String),
    Nil,
    Array(Vec<Reply>),
}

impl Connection {
    pub(super) fn open(address: SocketAddr, password: Option<&str>, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream: BufReader::new(stream) };
        if let Some(password) = password {
            match connection.command(&["AUTH", password])? {
                Reply::Error(error) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, error)),
                _ => return Ok(connection),
            }
        }
        Ok(connection)
    }

    pub(super) fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            "+" | ":" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            "$" => self.bulk(rest),
            "*" => {
                let Ok(length) = rest.parse::<usize>() else { return Ok(Reply::Nil) };
                (0..length).map(|_| self.reply()).collect::<io::Result<_>>().map(Reply::Array)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn bulk(&mut self, length: &str) -> io::Result<Reply> {
        // A length of -1 says that there is nothing.
        let Ok(length) = length.parse::<usize>() else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Reply {
    /// As `redis-cli --raw` prints it: an array is a line for each element, nothing is an empty
    /// line.
    pub(super) fn into_raw(self) -> String {
        match self {
            Self::Text(text) | Self::Error(text) => text,
            Self::Nil => String::new(),
            Self::Array(replies) => replies.into_iter().map(Self::into_raw).collect::<Vec<_>>().join("\n"),
        }
    }
}
