use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::connections::Connections;
use super::rule::{Action, Rule};

/// A server that has begun to reply and is silent for so long has replied.
const SILENCE: Duration = Duration::from_millis(50);

/// How often a write that the other side does not take looks whether the connection was cut.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

const CHUNK: usize = 64 * 1024;

/// One connection of a client and the one to the server that belongs to it.
#[derive(Debug)]
pub(super) struct ProxiedConnection {
    client: TcpStream,
    server: TcpStream,
    cut: AtomicBool,
    replies: Mutex<Replies>,
    /// The rule that ended this connection, which has acted when the sockets are closed.
    last_rule: Mutex<Option<Rule>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    Reset,
    Close,
}

/// What is to happen to what the server sends.
#[derive(Clone, Debug)]
enum Replies {
    Deliver,
    CutAfter(Rule),
    Withhold(Rule),
}

/// Closes a connection in the way of a crash.
#[expect(clippy::needless_pass_by_value, reason = "the last owner closes it")]
pub(super) fn reset(stream: TcpStream) {
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

impl ProxiedConnection {
    /// Passes bytes in both directions until either side is done.
    pub(super) fn run(client: TcpStream, server: TcpStream, connections: &Connections) {
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        }
        let connection = Arc::new(Self {
            client,
            server,
            cut: AtomicBool::new(false),
            replies: Mutex::new(Replies::Deliver),
            last_rule: Mutex::new(None),
        });
        let id = connections.register(&connection);
        thread::scope(|scope| {
            scope.spawn(|| connection.pass_replies(connections));
            connection.pass_requests(connections);
        });
        connections.unregister(id, connection);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Makes both directions end, in the way of the first who asks for it. The sockets are closed
    /// when they have.
    pub(super) fn cut(&self, cut: Cut) {
        if self.cut.swap(true, Ordering::AcqRel) {
            return;
        }
        match cut {
            Cut::Reset => {
                let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
                // Wakes our own reader. Shutting down the other half would tell the client in good
                // order.
                let _ = self.client.shutdown(Shutdown::Read);
            }
            Cut::Close => {
                let _ = self.client.shutdown(Shutdown::Both);
            }
        }
        let _ = self.server.shutdown(Shutdown::Both);
    }

    pub(super) fn take_last_rule(&self) -> Option<Rule> {
        self.last_rule.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn cut_by(&self, rule: Rule) {
        *self.last_rule.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
        self.cut(Cut::Reset);
    }

    fn pass_requests(&self, connections: &Connections) {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = (&self.client).read(&mut buffer) {
            let request = &buffer[..length];
            connections.count(|counts| {
                counts.chunks_from_client += 1;
                counts.bytes_from_client += length as u64;
            });
            match connections.pass(self, || self.pass_request(request, connections)) {
                Some(Ok(())) => {}
                Some(Err(_)) => return self.cut(Cut::Reset),
                None => return,
            }
        }
        if matches!(*self.replies(), Replies::Deliver) {
            // The client may be done asking and still listen.
            let _ = self.server.shutdown(Shutdown::Write);
        } else {
            self.cut(Cut::Close);
        }
    }

    fn pass_request(&self, request: &[u8], connections: &Connections) -> io::Result<()> {
        match connections.take_rule(request) {
            None => {}
            Some((Action::CutBefore, rule)) => {
                self.cut_by(rule);
                return Ok(());
            }
            Some((Action::Garble(reply), rule)) => {
                self.write(&self.client, &reply)?;
                rule.fire();
                return Ok(());
            }
            Some((Action::CutAfter, rule)) => *self.replies() = Replies::CutAfter(rule),
            Some((Action::Stall, rule)) => *self.replies() = Replies::Withhold(rule),
        }
        let written = self.write(&self.server, request);
        // A client whose replies are withheld is not told that the server is gone.
        if matches!(*self.replies(), Replies::Withhold(_)) { Ok(()) } else { written }
    }

    fn pass_replies(&self, connections: &Connections) {
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = (&self.server).read(&mut buffer);
            let Ok(length @ 1..) = read else { return self.server_is_done(&read) };
            connections.count(|counts| {
                counts.chunks_from_server += 1;
                counts.bytes_from_server += length as u64;
            });
            // In a statement of its own, so that the lock is not held meanwhile.
            let replies = self.replies().clone();
            match replies {
                Replies::Deliver => match connections.pass(self, || self.write(&self.client, &buffer[..length])) {
                    Some(Ok(())) => {}
                    Some(Err(_)) => return self.cut(Cut::Reset),
                    None => return,
                },
                Replies::Withhold(rule) => rule.fire(),
                Replies::CutAfter(rule) => {
                    let _ = self.server.set_read_timeout(Some(SILENCE));
                    while let Ok(1..) = (&self.server).read(&mut buffer) {}
                    return self.cut_by(rule);
                }
            }
        }
    }

    fn server_is_done(&self, last_read: &io::Result<usize>) {
        let replies = self.replies().clone();
        match replies {
            Replies::Withhold(_) => {}
            Replies::CutAfter(rule) => self.cut_by(rule),
            Replies::Deliver if self.is_cut() => {}
            Replies::Deliver => self.cut(if last_read.is_ok() { Cut::Close } else { Cut::Reset }),
        }
    }

    fn write(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_cut() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
