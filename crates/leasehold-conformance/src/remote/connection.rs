use std::io::{self, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Error;
use leasehold::backend::Publisher;

use super::pending::{ENDED, Gone, Pending};
use super::pipes;
use super::wire::{Answer, Call, Request};

/// The other process and the pipes to it. It ends when this is dropped.
pub(super) struct Connection {
    child: Mutex<Child>,
    requests: Sender<String>,
    pending: Arc<Mutex<Pending>>,
    next_id: AtomicU64,
}

impl Connection {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let connected = connect(&mut child);
        if connected.is_err() {
            end(&mut child);
        }
        let (requests, pending) = connected?;
        Ok(Self { child: Mutex::new(child), requests, pending, next_id: AtomicU64::new(0) })
    }

    pub(super) fn process_id(&self) -> u32 {
        lock(&self.child).id()
    }

    pub(super) fn kill(&self) {
        end(&mut lock(&self.child));
    }

    /// An id for the next call.
    pub(super) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) async fn call(&self, id: u64, call: Call) -> Result<Result<Answer, Error>, Gone> {
        let answer = lock(&self.pending).await_answer(id)?;
        self.send(&Request { id, call });
        answer.await.map_err(|_| lock(&self.pending).why_gone())
    }

    pub(super) fn listen(&self, id: u64, publisher: Publisher) {
        lock(&self.pending).listen(id, publisher);
    }

    pub(super) fn unsubscribe(&self, id: u64) {
        lock(&self.pending).forget(id);
        self.send(&Request { id, call: Call::Unsubscribe });
    }

    fn send(&self, request: &Request) {
        match serde_json::to_string(request) {
            // If the writer is gone, it has told all who wait.
            Ok(line) => drop(self.requests.send(line)),
            Err(_) => lock(&self.pending).forget(request.id),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        end(self.child.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

fn connect(child: &mut Child) -> io::Result<(Sender<String>, Arc<Mutex<Pending>>)> {
    let no_pipe = || io::Error::other("the process has no pipes");
    let (input, output) = (child.stdin.take().ok_or_else(no_pipe)?, child.stdout.take().ok_or_else(no_pipe)?);
    let pending = Arc::new(Mutex::new(Pending::default()));
    let (heard, ended, unheard) = (pending.clone(), pending.clone(), pending.clone());
    let each = move |line: &str| {
        let reply = serde_json::from_str(line)?;
        lock(&heard).deliver(reply);
        Ok(())
    };
    pipes::read(BufReader::new(output), each, move |failed| {
        lock(&ended).close(if failed.is_some() { "the process of the store sent what is no answer" } else { ENDED });
    })?;
    let requests = pipes::write(input, move || lock(&unheard).close(ENDED))?;
    Ok((requests, pending))
}

/// Kills the process, and waits so that it does not stay as a zombie; a killed process takes no
/// time to speak of.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
