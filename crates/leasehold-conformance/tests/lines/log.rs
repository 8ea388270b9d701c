//! What the workers write down, and what that shows.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_conformance::history::{Event, What, check};

/// Nanoseconds on a clock that the processes of this host share.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A file that a worker appends to, one line at a time, so that it can be read when it was killed.
pub(crate) struct Log(fs::File);

impl Log {
    pub(crate) fn open(place: &Path) -> Self {
        let name = format!("{}.log", std::process::id());
        Self(fs::File::options().create(true).append(true).open(place.join(name)).unwrap())
    }

    pub(crate) fn event(&mut self, at: u64, lock: &str, what: What) {
        let event = Event { at, key: "k".to_owned(), lock: lock.to_owned(), what };
        self.line(&serde_json::to_string(&event).unwrap());
    }

    /// A wait that has come to its end: when it was begun, when it had its place, when it was over.
    pub(crate) fn wait(&mut self, wait: Wait) {
        self.line(&format!("wait {} {} {}", wait.sent, wait.placed.unwrap_or(0), wait.granted));
    }

    fn line(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// One worker's wait for the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// Whose it was.
    pub(crate) process: u32,
    pub(crate) sent: u64,
    /// When it knew that it stood in line. It may have stood there before.
    pub(crate) placed: Option<u64>,
    pub(crate) granted: u64,
}

/// What all workers wrote down.
pub(crate) struct Logs {
    events: Vec<Event>,
    waits: Vec<Wait>,
}

impl Logs {
    pub(crate) fn read(place: &Path) -> Self {
        let (mut events, mut waits) = (Vec::new(), Vec::new());
        for file in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let process = file.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            let text = fs::read_to_string(file).unwrap();
            // The last line of one that was killed may be cut off.
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            for line in complete.lines() {
                match line.strip_prefix("wait ") {
                    Some(wait) => {
                        let mut times = wait.split(' ').map(|time| time.parse::<u64>().unwrap());
                        let mut next = || times.next().unwrap();
                        let (sent, placed, granted) = (next(), next(), next());
                        let placed = Some(placed).filter(|placed| *placed > 0);
                        waits.push(Wait { process, sent, placed, granted });
                    }
                    None => events.push(serde_json::from_str(line).unwrap()),
                }
            }
        }
        Self { events, waits }
    }

    pub(crate) fn grants(&self) -> usize {
        self.waits.len()
    }

    pub(crate) fn in_line(&self) -> usize {
        self.waits.iter().filter(|wait| wait.placed.is_some()).count()
    }

    /// Fails if many of those who waited were overtaken, or one of them by many, except for these
    /// processes.
    ///
    /// A process that does not come within two seconds when it is called loses its place: on a busy
    /// machine that happens, but seldom.
    #[track_caller]
    pub(crate) fn assert_in_order(&self, processes: usize, except: &HashSet<u32>) {
        let waits = self.waits.iter().filter(|wait| !except.contains(&wait.process));
        // How many who came after it had its place were served before it.
        let passed = |wait: &Wait| {
            let Some(placed) = wait.placed else { return 0 };
            self.waits.iter().filter(|other| other.sent > placed && other.granted < wait.granted).count()
        };
        let overtaken: Vec<_> = waits.map(passed).collect();
        let some = overtaken.iter().filter(|others| **others > 0).count();
        assert!(some * 20 <= overtaken.len(), "{some} of {} were overtaken", overtaken.len());
        assert!(overtaken.iter().all(|others| *others <= 3 * processes), "{:?}", overtaken.iter().max());
    }

    /// The longest time in which nobody was served.
    pub(crate) fn longest_pause(&self) -> Duration {
        let mut grants: Vec<_> = self.waits.iter().map(|wait| wait.granted).collect();
        grants.sort_unstable();
        Duration::from_nanos(grants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0))
    }

    /// Fails if two held the lock at once, or a fence went back.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        if let Err(broken) = check(&self.events) {
            let shown: Vec<_> = broken.iter().take(10).map(|violation| format!("  {violation}")).collect();
            panic!("{} violations:\n{}", broken.len(), shown.join("\n"));
        }
    }
}
