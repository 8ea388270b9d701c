use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use leasehold::backend::{Backend, LookupBy};
use leasehold::{Error, ErrorCode};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{AbortHandle, JoinSet};

use super::pipes;
use super::wire::{About, Answer, Call, Listed, Reply, Request, Said, Waiting};

/// Serves `store` to the [`Peer`](super::Peer) that started this process, on standard input and
/// output, until the input ends, which it does when the process of the peer is gone. Nothing else
/// may read the one or write to the other.
///
/// Calls are carried out side by side, as they come in. One that panics is answered with
/// [`Internal`](ErrorCode::Internal).
///
/// # Errors
///
/// If the input cannot be read or does not come from a peer.
pub async fn serve(store: Arc<dyn Backend>) -> io::Result<()> {
    serve_on(store, BufReader::new(io::stdin()), io::stdout()).await
}

pub(super) async fn serve_on(
    store: Arc<dyn Backend>,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let replies = pipes::write(output, || {})?;
    let (sender, mut requests) = unbounded_channel();
    let ended = sender.clone();
    let each = move |line: &str| {
        let request = serde_json::from_str::<Request>(line)?;
        sender.send(Ok(request)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    };
    pipes::read(input, each, move |failed| {
        if let Some(failed) = failed {
            let _ = ended.send(Err(failed));
        }
    })?;
    // All that is under way is dropped when the peer is gone.
    let mut tasks = JoinSet::new();
    let mut subscriptions: HashMap<u64, AbortHandle> = HashMap::new();
    while let Some(request) = requests.recv().await {
        let Request { id, call } = request?;
        let caller = Caller { id, replies: replies.clone(), answered: false };
        match call {
            Call::Unsubscribe => {
                caller.hang_up();
                if let Some(task) = subscriptions.remove(&id) {
                    task.abort();
                }
            }
            Call::Subscribe(about) => {
                subscriptions.insert(id, tasks.spawn(subscribe(store.clone(), about, caller)));
            }
            call => {
                let store = store.clone();
                tasks.spawn(async move { caller.answer(carry_out(&*store, call).await) });
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    Ok(())
}

async fn carry_out(store: &dyn Backend, call: Call) -> Result<Answer, Error> {
    Ok(match call {
        Call::Capabilities => Answer::Capabilities(store.capabilities()),
        Call::Acquire(request) => Answer::Acquire(store.acquire(&request).await?),
        Call::AcquireAll(wanted) => {
            let requests: Vec<_> = wanted.into_iter().map(|wanted| wanted.0).collect();
            Answer::AcquireAll(store.acquire_all(&requests).await?)
        }
        Call::Release(id) => Answer::Release(store.release(&id).await?),
        Call::Extend(id, ttl) => Answer::Extend(store.extend(&id, ttl).await?),
        Call::IsLocked(key) => Answer::IsLocked(store.is_locked(&key).await?),
        Call::LookupKey(key) => Answer::Lookup(store.lookup(LookupBy::Key(&key)).await?.map(Listed)),
        Call::LookupId(id) => Answer::Lookup(store.lookup(LookupBy::Id(&id)).await?.map(Listed)),
        Call::Inspect(key) => {
            let found = store.inspect(&key).await?;
            let holders = found.holders.into_iter().map(Listed).collect();
            Answer::Inspect(holders, found.waiters.into_iter().map(Waiting).collect())
        }
        Call::List(request) => {
            let page = store.list(&request).await?;
            let records = page.records.into_iter().map(Listed).collect();
            Answer::List { records, waiting: page.waiting.into_iter().collect(), next: page.next }
        }
        Call::ForceRelease(key, only) => {
            Answer::ForceRelease(store.force_release(&key, only).await?.into_iter().map(Listed).collect())
        }
        Call::Subscribe(_) | Call::Unsubscribe => {
            return Err(Error::new(ErrorCode::Internal, "a subscription is not a single answer"));
        }
    })
}

async fn subscribe(store: Arc<dyn Backend>, about: About, mut caller: Caller) {
    match store.subscribe(about.topic()).await {
        Ok(mut subscription) => {
            caller.say(Said::Answer(Answer::Subscribed));
            while let Some(event) = subscription.next().await {
                caller.say(Said::Event(event));
            }
            caller.say(Said::Closed);
        }
        Err(error) => caller.answer(Err(error)),
    }
}

/// Whoever waits for the answer to a call.
struct Caller {
    id: u64,
    replies: Sender<String>,
    answered: bool,
}

impl Caller {
    fn say(&mut self, said: Said) {
        self.answered = true;
        // What cannot be written or is not read any more helps nobody; the end of the input will
        // end this process.
        if let Ok(line) = serde_json::to_string(&Reply { id: self.id, said }) {
            let _ = self.replies.send(line);
        }
    }

    fn answer(mut self, outcome: Result<Answer, Error>) {
        self.say(outcome.into());
    }

    /// Nobody waits.
    fn hang_up(mut self) {
        self.answered = true;
    }
}

impl Drop for Caller {
    /// Only a panic or the end of everything keeps a call from its answer, and a peer must not wait
    /// for ever.
    fn drop(&mut self) {
        if !self.answered {
            let error = Error::new(ErrorCode::Internal, "the store panicked").with_outcome_unknown();
            self.say(Err(error).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter};
    use std::thread::JoinHandle;

    use leasehold::backend::AcquireRequest;
    use leasehold::memory::Memory;
    use leasehold::testing::FaultLayer;
    use leasehold::{Key, LockId, Operation, Ttl};

    use super::*;

    /// A server on a thread and a runtime of its own, and the ends of its pipes.
    struct Served {
        requests: PipeWriter,
        replies: io::Lines<BufReader<PipeReader>>,
        thread: JoinHandle<io::Result<()>>,
    }

    impl Served {
        fn start(store: impl Backend) -> Self {
            let ((input, requests), (replies, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let serving = serve_on(Arc::new(store), BufReader::new(input), output);
            let thread = std::thread::spawn(move || runtime.block_on(serving));
            Self { requests, replies: BufReader::new(replies).lines(), thread }
        }

        fn send(&mut self, id: u64, call: Call) {
            writeln!(self.requests, "{}", serde_json::to_string(&Request { id, call }).unwrap()).unwrap();
        }

        /// The next reply, which must be to `id`.
        fn said(&mut self, id: u64) -> Said {
            let reply: Reply = serde_json::from_str(&self.replies.next().unwrap().unwrap()).unwrap();
            assert_eq!(reply.id, id);
            reply.said
        }

        fn end(self) -> io::Result<()> {
            drop(self.requests);
            self.thread.join().unwrap()
        }
    }

    fn key() -> Key {
        Key::new("served").unwrap()
    }

    #[test]
    fn an_unsubscribed_reader_hears_nothing_and_another_one_does() {
        let mut served = Served::start(Memory::new());
        for id in [1, 2] {
            served.send(id, Call::Subscribe(About::Freed(key())));
            assert!(matches!(served.said(id), Said::Answer(Answer::Subscribed)));
        }
        served.send(1, Call::Unsubscribe);
        let lock_id = LockId::random().unwrap();
        served.send(3, Call::Acquire(AcquireRequest::new(key(), lock_id, Ttl::default())));
        assert!(matches!(served.said(3), Said::Answer(Answer::Acquire(leasehold::backend::Acquire::Granted(_)))));
        served.send(4, Call::Release(lock_id));
        let (mut answers, mut events) = (0, 0);
        for _ in 0..2 {
            let reply: Reply = serde_json::from_str(&served.replies.next().unwrap().unwrap()).unwrap();
            match (reply.id, reply.said) {
                (4, Said::Answer(_)) => answers += 1,
                (2, Said::Event(leasehold::backend::Event::Freed)) => events += 1,
                (id, _) => panic!("a reply to {id}"),
            }
        }
        assert_eq!((answers, events), (1, 1));
        served.send(5, Call::IsLocked(key()));
        assert!(matches!(served.said(5), Said::Answer(Answer::IsLocked(false))));
        served.end().unwrap();
    }

    #[test]
    fn a_store_that_panics_is_an_error() {
        let (store, faults) = FaultLayer::new(Memory::new());
        faults.on_call(Operation::IsLocked, || panic!("a bug"));
        let mut served = Served::start(store);
        served.send(1, Call::IsLocked(key()));
        let Said::Error(failure) = served.said(1) else { panic!("not an error") };
        let error = Error::from(failure);
        assert_eq!((error.code(), error.outcome_unknown()), (ErrorCode::Internal, true));
        served.send(2, Call::Capabilities);
        assert!(matches!(served.said(2), Said::Answer(Answer::Capabilities(_))));
    }

    #[test]
    fn what_is_no_request_ends_the_service() {
        let mut served = Served::start(Memory::new());
        served.requests.write_all(b"hello\n").unwrap();
        assert!(served.thread.join().unwrap().is_err());
    }
}
