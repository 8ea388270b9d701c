use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::params;
use tokio::sync::oneshot;

use super::bus::{Datagram, DatagramSender};
use super::database::{Database, Writes};
use super::error::{is_full, leaves_transaction_intact, translate};
use super::job::{Answer, Job};
use super::open::OPEN;
use super::operations::{Message, Operations};
use super::rows::column;
use crate::{Error, ErrorCode};

/// About how many locks are decided on in one transaction, so that nobody waits long for an answer.
const MOST_TOGETHER: usize = 256;
/// How often dead records and listeners are cleared away.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long the thread looks for work before it goes to sleep: waking it costs more than a
/// transaction.
const LOOK_FOR_WORK: Duration = Duration::from_micros(40);

/// The way to send work, and how the opening went.
type Started = (Sender<Job>, oneshot::Receiver<Result<(), Error>>);

/// Starts the thread that owns the database and returns the way to send it work. It ends when all
/// senders are gone and everything that was sent is done.
pub(super) fn start(make: impl FnOnce() -> Result<Database, Error> + Send + 'static) -> Result<Started, Error> {
    let (jobs, received) = channel();
    let (opened, outcome) = oneshot::channel();
    let counted = OPEN.open()?;
    let run = move || match make() {
        Ok(database) => {
            let _ = opened.send(Ok(()));
            let sender = DatagramSender::new(database.path());
            Worker { database, sender, swept: Instant::now() }.run(&received);
            drop(counted);
        }
        Err(error) => {
            let _ = opened.send(Err(error));
            drop(counted);
        }
    };
    thread::Builder::new().name("leasehold-sqlite".into()).spawn(run).map_err(|source| {
        Error::new(ErrorCode::Internal, "cannot start the thread of the database")
            .with_hint("the limit on threads of this process may be too low")
            .with_source(source)
    })?;
    Ok((jobs, outcome))
}

struct Worker {
    database: Database,
    sender: DatagramSender,
    swept: Instant,
}

/// Why a transaction failed.
enum Failed {
    /// Because of one of its operations; the others may go well without it.
    InOperation(Error),
    /// Each operation would fail by itself.
    AsAWhole(Error),
}

/// What a transaction came to.
struct Committed {
    /// One for each operation.
    answers: Vec<Result<Answer, Error>>,
    /// What others are to hear.
    datagrams: Vec<Datagram>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            match next(jobs, self.sender.catches_up_in().unwrap_or(SWEEP_EVERY)) {
                Ok(first) => {
                    // Whatever came in while the last transaction ran is done in this one, in
                    // order.
                    let mut locks = first.op.locks();
                    let mut batch = vec![first];
                    while locks < MOST_TOGETHER
                        && let Ok(job) = jobs.try_recv()
                    {
                        locks += job.op.locks();
                        batch.push(job);
                    }
                    self.carry_out(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.sender.catch_up();
            if self.swept.elapsed() > SWEEP_EVERY {
                self.swept = Instant::now();
                // Nobody waits for it, and the next one will do what this one could not.
                if let Err(error) = self.sweep() {
                    tracing::debug!(%error, "cannot sweep the database");
                }
            }
        }
    }

    fn carry_out(&mut self, batch: Vec<Job>) {
        let outcome = match self.transact(&batch) {
            Err(Failed::InOperation(_)) if batch.len() > 1 => {
                // One of them spoilt it for all.
                return batch.into_iter().for_each(|job| self.carry_out(vec![job]));
            }
            Err(Failed::InOperation(error) | Failed::AsAWhole(error)) if is_full(&error) => {
                self.make_room().map_err(Failed::AsAWhole).and_then(|()| self.transact(&batch))
            }
            outcome => outcome,
        };
        match outcome {
            Ok(Committed { answers, datagrams }) => {
                // First the datagrams: a process may end as soon as it has its answer.
                self.deliver(datagrams);
                for (job, answer) in batch.into_iter().zip(answers) {
                    job.answer(answer);
                }
            }
            Err(Failed::InOperation(error) | Failed::AsAWhole(error)) => {
                batch.into_iter().for_each(|job| job.answer(Err(error.clone())));
            }
        }
    }

    /// Carries out the operations in one transaction. Fails as a whole if one of them spoils it.
    fn transact(&mut self, batch: &[Job]) -> Result<Committed, Failed> {
        self.database.look_again().map_err(Failed::AsAWhole)?;
        self.database.check_identity().map_err(Failed::AsAWhole)?;
        let reads_only = batch.iter().all(|job| job.op.only_reads());
        self.execute(if reads_only { "BEGIN" } else { "BEGIN IMMEDIATE" }).map_err(Failed::AsAWhole)?;
        match self.operate(batch) {
            Ok(committed) => self.commit().map(|()| committed).map_err(Failed::AsAWhole),
            Err(error) => {
                // SQLite may have done so already.
                let _ = self.execute("ROLLBACK");
                Err(Failed::InOperation(error))
            }
        }
    }

    fn operate(&mut self, batch: &[Job]) -> Result<Committed, Error> {
        let mut messages = Vec::new();
        // Read only now: waiting for the write lock takes time.
        let now = self.database.now();
        let (database, sender) = (&self.database, &mut self.sender);
        let mut operations = Operations { database, sender, now, messages: &mut messages, present: None };
        let mut answers = Vec::with_capacity(batch.len());
        for job in batch {
            let answer = job.op.run(&mut operations);
            match answer {
                Err(error) if !leaves_transaction_intact(&error) => return Err(error),
                answer => answers.push(answer),
            }
        }
        let datagrams = self.address(&messages)?;
        Ok(Committed { answers, datagrams })
    }

    /// Finds out who is to hear the messages.
    fn address(&self, messages: &[Message]) -> Result<Vec<Datagram>, Error> {
        let mut datagrams = Vec::new();
        for message in messages {
            let sql = "SELECT address FROM listeners WHERE topic = ?1";
            let mut statement = self.database.connection.prepare_cached(sql).map_err(translate)?;
            let addresses = statement.query_map([message.topic()], |row| row.get(0)).map_err(translate)?;
            for address in addresses {
                datagrams.push(Datagram { address: address.map_err(translate)?, text: message.encode() });
            }
        }
        Ok(datagrams)
    }

    fn commit(&self) -> Result<(), Error> {
        self.execute("COMMIT").map_err(|error| {
            let _ = self.execute("ROLLBACK");
            // A disk that failed while the end of the transaction was written may have kept it.
            if is_full(&error) { error } else { error.with_outcome_unknown() }
        })
    }

    fn deliver(&mut self, mut datagrams: Vec<Datagram>) {
        // Those who are gone may be first in line, and others are to hear that they are next.
        while !datagrams.is_empty() {
            let gone = self.sender.send(&datagrams);
            datagrams = self.forget(&gone).unwrap_or_else(|error| {
                // The next sweep will do it.
                tracing::debug!(%error, "cannot strike off listeners who are gone");
                Vec::new()
            });
        }
    }

    /// Strikes off listeners who are gone, and what they waited for. Returns what others are to
    /// hear of that.
    fn forget(&mut self, addresses: &[String]) -> Result<Vec<Datagram>, Error> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        self.execute("BEGIN IMMEDIATE")?;
        match self.strike_off(addresses) {
            Ok(datagrams) => {
                self.commit()?;
                // Only now: as long as somebody may send there, nobody else shall have the name.
                self.sender.remove(addresses);
                Ok(datagrams)
            }
            Err(error) => {
                let _ = self.execute("ROLLBACK");
                Err(error)
            }
        }
    }

    fn strike_off(&mut self, addresses: &[String]) -> Result<Vec<Datagram>, Error> {
        let mut messages = Vec::new();
        let (database, sender, now) = (&self.database, &mut self.sender, self.database.now());
        let mut operations = Operations { database, sender, now, messages: &mut messages, present: None };
        addresses.iter().try_for_each(|address| operations.strike_off(address))?;
        self.address(&messages)
    }

    fn sweep(&mut self) -> Result<(), Error> {
        if self.database.writes != Writes::All {
            return Ok(());
        }
        self.database.check_identity()?;
        self.execute("BEGIN IMMEDIATE")?;
        let swept = self.sweep_rows();
        if swept.is_err() {
            let _ = self.execute("ROLLBACK");
        }
        swept.map_err(translate)?;
        self.commit()?;
        let connection = &self.database.connection;
        let addresses: Vec<String> = connection
            .prepare("SELECT DISTINCT address FROM listeners ORDER BY random() LIMIT 200")
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
            .map_err(translate)?;
        let dead = self.sender.dead(addresses);
        let datagrams = self.forget(&dead)?;
        self.deliver(datagrams);
        let strays = self.sender.strays();
        self.sender.remove(&strays);
        Ok(())
    }

    fn sweep_rows(&self) -> rusqlite::Result<()> {
        let (connection, now) = (&self.database.connection, self.database.now());
        let dead = column(now.latest_swept().as_millis());
        connection.execute(include_str!("sweep.sql"), params![dead])?;
        connection.execute(include_str!("sweep_grants.sql"), params![dead])?;
        connection.execute(include_str!("sweep_line.sql"), params![column(now.as_millis())])?;
        Ok(())
    }

    /// The log holds what the database file may have room for.
    fn make_room(&self) -> Result<(), Error> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.database.connection.query_row(checkpoint, [], |_| Ok(())).map_err(translate)
    }

    fn execute(&self, sql: &'static str) -> Result<(), Error> {
        let mut statement = self.database.connection.prepare_cached(sql).map_err(translate)?;
        statement.execute([]).map(drop).map_err(translate)
    }
}

/// The next job. Work that follows on an answer comes within microseconds, so it is looked for
/// before going to sleep.
fn next(jobs: &Receiver<Job>, timeout: Duration) -> Result<Job, RecvTimeoutError> {
    let looking = Instant::now();
    while looking.elapsed() < LOOK_FOR_WORK {
        match jobs.try_recv() {
            Ok(job) => return Ok(job),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
        }
    }
    jobs.recv_timeout(timeout)
}
