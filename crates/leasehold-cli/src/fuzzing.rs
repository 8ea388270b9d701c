//! What the fuzz targets of the folder `fuzz` check of the command. Not for users.

use std::time::Duration;

use leasehold::fuzzing::Target;
use leasehold::{Fence, Grant, Holder, Key, LockId, LockInfo, Locked, Metadata, Mode, Timestamp};

use crate::escape::json_line;
use crate::locks_view::Look;
use crate::{locks_view, options, output, text};

/// Those of the command.
pub const TARGETS: &[Target] = &[DURATION, TABLE];

/// Times as people write them, and as they are shown.
pub const DURATION: Target = Target {
    name: "duration",
    run: duration,
    corpus: &[
        b"30s",
        b"1h 30m",
        b"250ms",
        b"36500d 1ms",
        b"5M",
        b"18446744073709551615s",
        b"1.5s",
        b"999999999999999999999999d",
        b"-1s",
        b"0",
    ],
};

fn duration(data: &[u8]) {
    let written = String::from_utf8_lossy(data);
    let Ok(time) = options::duration(&written) else {
        assert!(options::ttl(&written).is_err() && options::some_time(&written).is_err());
        return;
    };
    assert!(time <= Duration::from_secs(100 * 365 * 24 * 60 * 60), "{time:?}");
    let again = format!("{}.{:09}s", time.as_secs(), time.subsec_nanos());
    assert_eq!(options::duration(&again), Ok(time), "{again}");
    assert_eq!(options::some_time(&written).is_ok(), !time.is_zero());
    if let Ok(ttl) = options::ttl(&written) {
        assert_eq!(ttl.as_duration(), time);
    }
    let shown = text::duration(time);
    let units: Vec<_> = shown.split(' ').collect();
    assert!((1..=2).contains(&units.len()), "{shown}");
    // What is shown may leave out the smaller units, and is not more than it was.
    assert!(options::duration(&shown).is_ok_and(|shown| shown <= time), "{time:?} is shown as {shown}");
}

/// Locks as they are listed, on terminals of any width.
pub const TABLE: Target = Target {
    name: "table",
    run: table,
    corpus: &[
        b"\x50order:42\xffhost/job\xff{\"job\":\"nightly\"}",
        "\x50❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}".as_bytes(),
        "\x20日本語日本語日本語\u{202e}\u{1b}[31m\u{9b}31m\n".as_bytes(),
        "\x01👩\u{200d}👩\u{200d}👧🏽🇩🇪1\u{fe0f}\u{20e3}".as_bytes(),
        b"\x00k\xff\x1b]0;title\x07\xff{\"a\\u001b\":\"\\u202e\",\"b\":[\"\\n\"]}",
    ],
};

fn table(data: &[u8]) {
    let Some((columns, data)) = data.split_first() else { return };
    let columns = usize::from(*columns).max(1);
    let mut held = Vec::new();
    let mut fields = data.split(|byte| *byte == 0xff).map(String::from_utf8_lossy);
    while let Some(key) = fields.next() {
        let holder = fields.next().and_then(|name| Holder::new(&name).ok());
        let metadata = fields.next().and_then(|notes| serde_json::from_str::<Metadata>(&notes).ok());
        held.extend(Key::new(&key).ok().map(|key| locked(key, holder, metadata.unwrap_or_default())));
    }
    if held.is_empty() {
        return;
    }
    let look = Look { held, now: Timestamp::now() };
    for width in [None, Some(columns)] {
        let table = locks_view::table(&look, width);
        assert_eq!(table.lines().count(), look.held.len() + 1, "{table:?}");
        assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
        let fits = |line: &str| width.is_none_or(|width| text::width(line) <= width);
        assert!(table.lines().all(fits), "{table:?} in {width:?} columns");
    }
    // Without a limit nothing is cut, and every fence begins in the same column.
    let table = locks_view::table(&look, None);
    let starts = table.lines().skip(1).map(|line| line.find(FENCE).map(|at| text::width(&line[..at])));
    let starts: Vec<_> = starts.collect();
    assert!(starts.iter().all(|start| start.is_some() && *start == starts[0]), "{table:?}");
    for locked in &look.held {
        let line = json_line(&locks_view::json_object(locked, look.now));
        assert!(!line.chars().any(|c| c.is_control() && c != '\n'), "{line:?}");
        let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["key"].as_str(), Some(locked.key.as_str()));
        let details = output::plain(&locks_view::details(locked, look.now));
        assert!(!details.chars().any(|c| c.is_control() && c != '\n'), "{details:?}");
    }
}

/// The fence of all locks of [`TABLE`], which nothing else there looks like.
const FENCE: &str = "000987654321012";

fn locked(key: Key, holder: Option<Holder>, metadata: Metadata) -> Locked {
    let id: LockId = "abcdefghijklmnopqrstuv".parse().expect("a lock id");
    let fence: Fence = FENCE.parse().expect("a fence");
    let now = Timestamp::now();
    // Keys of three lengths are held in three ways.
    let (mode, slot) = match key.as_str().len() % 3 {
        0 => (Mode::Exclusive, None),
        1 => (Mode::Shared, None),
        _ => (Mode::Permit { of: std::num::NonZeroU16::MAX }, Some(12)),
    };
    let waiting = u32::try_from(key.as_str().len() / 3).unwrap_or(u32::MAX);
    let grant = Grant::new(id, fence, now, now + Duration::from_secs(30)).with_slot(slot);
    let record = leasehold::backend::Record::new(key.clone(), &grant).with_holder(holder).with_metadata(metadata);
    Locked::new(key, LockInfo::from(record.with_mode(mode))).with_waiting(waiting)
}
