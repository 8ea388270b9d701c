use std::io::{self, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::{Error, Publisher};

use super::lines;
use super::links::{ENDED, Gone, Links};
use super::wire::{Answer, Call, Request};

/// The other process and the pipes to it. It ends when this is dropped.
pub(super) struct Connection {
    child: Mutex<Child>,
    requests: Sender<String>,
    links: Arc<Mutex<Links>>,
    next_id: AtomicU64,
}

impl Connection {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let connected = connect(&mut child);
        if connected.is_err() {
            end(&mut child);
        }
        let (requests, links) = connected?;
        Ok(Self { child: Mutex::new(child), requests, links, next_id: AtomicU64::new(0) })
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
        let answer = lock(&self.links).await_answer(id)?;
        self.send(&Request { id, call });
        answer.await.map_err(|_| lock(&self.links).why_gone())
    }

    pub(super) fn listen(&self, id: u64, publisher: Publisher) {
        lock(&self.links).listen(id, publisher);
    }

    pub(super) fn unsubscribe(&self, id: u64) {
        lock(&self.links).forget(id);
        self.send(&Request { id, call: Call::Unsubscribe });
    }

    fn send(&self, request: &Request) {
        match serde_json::to_string(request) {
            // If the writer is gone, it has told all who wait.
            Ok(line) => drop(self.requests.send(line)),
            Err(_) => lock(&self.links).forget(request.id),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        end(self.child.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

fn connect(child: &mut Child) -> io::Result<(Sender<String>, Arc<Mutex<Links>>)> {
    let no_pipe = || io::Error::other("the process has no pipes");
    let (input, output) = (child.stdin.take().ok_or_else(no_pipe)?, child.stdout.take().ok_or_else(no_pipe)?);
    let links = Arc::new(Mutex::new(Links::default()));
    let (heard, ended, unheard) = (links.clone(), links.clone(), links.clone());
    let each = move |line: &str| {
        let reply = serde_json::from_str(line)?;
        lock(&heard).deliver(reply);
        Ok(())
    };
    lines::read(BufReader::new(output), each, move |failed| {
        lock(&ended).close(if failed.is_some() { "the process of the store sent what is no answer" } else { ENDED });
    })?;
    let requests = lines::write(input, move || lock(&unheard).close(ENDED))?;
    Ok((requests, links))
}

/// Kills the process, and waits so that it does not stay as a zombie; a killed process takes no time to speak of.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
