use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Key, LockId, Locks, Ttl};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{Answer, LONGEST_REQUEST, Request, Shown};
use crate::exit::Failure;
use crate::granted::Granted;
use crate::key_view::KeyView;

/// The longest that somebody may take to say what it wants.
const ASKING: Duration = Duration::from_secs(5);

/// How often to look for a name for the directory.
const TRIES: usize = 5;

/// The locks of a `run`, for the command that runs under them. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct OwnLock {
    directory: PathBuf,
    task: JoinHandle<()>,
}

/// What may be asked of us: these locks in this store, and nothing else.
#[derive(Debug)]
struct Served {
    locks: Locks,
    store: String,
    keys: Vec<Key>,
    lock_ids: Vec<LockId>,
    /// That of the `run`.
    ttl: Ttl,
}

impl OwnLock {
    /// Listens at a socket in a new directory that only this user can enter.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn serve(locks: &Locks, store: String, granted: &Granted, ttl: Ttl) -> io::Result<Self> {
        let directory = make_directory()?;
        let listener = UnixListener::bind(socket_in(&directory)).inspect_err(|_| {
            let _ = std::fs::remove_dir(&directory);
        })?;
        let keys = granted.iter().map(|guard| guard.key().clone()).collect();
        let lock_ids = granted.lock_ids().copied().collect();
        let served = Arc::new(Served { locks: locks.clone(), store, keys, lock_ids, ttl });
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let served = served.clone();
                        // Whoever goes away in the middle does not get its answer.
                        tokio::spawn(async move { drop(served.answer(stream).await) });
                    }
                    // There may be too many open files.
                    Err(_) => tokio::time::sleep(ASKING / 10).await,
                }
            }
        });
        Ok(Self { directory, task })
    }

    /// Where the socket is.
    pub(crate) fn path(&self) -> PathBuf {
        socket_in(&self.directory)
    }
}

impl Drop for OwnLock {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(self.path());
        let _ = std::fs::remove_dir(&self.directory);
    }
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// A new directory for this user alone. The name is no secret, and nobody else can have made it.
fn make_directory() -> io::Result<PathBuf> {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for base in of_session.into_iter().chain([std::env::temp_dir()]) {
        for _ in 0..TRIES {
            let directory = base.join(format!("leasehold-{:016x}", fastrand::u64(..)));
            outcome = std::fs::DirBuilder::new().mode(0o700).create(&directory).map(|()| directory);
            match &outcome {
                Ok(_) => return outcome,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) => break,
            }
        }
    }
    outcome
}

impl Served {
    async fn answer(&self, stream: UnixStream) -> io::Result<()> {
        // The directory keeps others out; this does so if it was opened to them.
        let peer = stream.peer_cred()?.uid();
        if peer != rustix::process::geteuid().as_raw() && peer != 0 {
            return Ok(());
        }
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        tokio::time::timeout(ASKING, BufReader::new(read.take(LONGEST_REQUEST)).read_line(&mut line)).await??;
        let line: Value = serde_json::from_str(&line)?;
        let answer = match Request::decode(&line) {
            Some((store, request)) if self.is_ours(store, &request) => encode(self.carry_out(request).await),
            // Whoever asks looks for it in the store then.
            _ => json!({ "other": true }),
        };
        write.write_all(format!("{answer}\n").as_bytes()).await
    }

    fn is_ours(&self, store: &str, request: &Request) -> bool {
        let is_ours = match request {
            Request::Extend { lock_id, .. } | Request::Release { lock_id } => self.lock_ids.contains(lock_id),
            Request::Show { key } => self.keys.contains(key),
        };
        is_ours && store == self.store
    }

    async fn carry_out(&self, request: Request) -> Result<Answer, Failure> {
        Ok(match request {
            Request::Extend { lock_id, ttl_ms } => {
                let ttl = Ttl::from_millis(ttl_ms).map_err(|error| Failure::usage(&error))?;
                // Whoever wants it to last longer does not want it to end earlier.
                Answer::Done(self.locks.extend(&lock_id, ttl.max(self.ttl)).await?)
            }
            Request::Release { lock_id } => Answer::Done(self.locks.release(&lock_id).await?),
            Request::Show { key } => {
                let found = self.locks.inspect(&key).await?;
                let found = KeyView::new(key, found, self.locks.now().await?);
                found.map_or(Answer::NotHeld, |found| Answer::Shown(Shown::of(&found)))
            }
        })
    }
}

fn encode(answer: Result<Answer, Failure>) -> Value {
    match answer {
        Ok(Answer::Done(done)) => json!({ "done": done }),
        Ok(Answer::Shown(Shown { text, object, is_held })) => {
            json!({ "text": text, "object": object, "held": is_held })
        }
        Ok(Answer::NotHeld) => json!({ "held": false }),
        Err(failure) => json!({ "exit_code": failure.code, "message": failure.message, "hint": failure.hint }),
    }
}
