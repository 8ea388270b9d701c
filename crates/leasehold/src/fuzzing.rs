//! What the fuzz targets of the folder `fuzz` check. The tests run the same on any compiler. Not
//! for users.

use std::error::Error as _;

use percent_encoding::percent_decode_str;

#[cfg(any(feature = "firestore", feature = "redis", feature = "postgres"))]
use crate::backend::Record;
use crate::backend::StorageKeys;
use crate::stores::{absolute_url, public_url};
use crate::{Error, ErrorCode, HashId, Key};
#[cfg(any(feature = "firestore", feature = "redis", feature = "postgres"))]
use crate::{Fence, LockId, Timestamp};

#[cfg(feature = "firestore")]
pub use crate::firestore::fuzzing::{FIRESTORE_DOCUMENT, FIRESTORE_URL};
#[cfg(feature = "postgres")]
pub use crate::postgres::fuzzing::{POSTGRES_ROW, POSTGRES_URL};
#[cfg(feature = "redis")]
pub use crate::redis::fuzzing::{REDIS_RECORD, REDIS_URL};
#[cfg(feature = "_remote")]
pub use crate::remote::fuzzing::NOTIFICATION;
#[cfg(feature = "sqlite")]
pub use crate::sqlite::fuzzing::SQLITE_URL;

/// Something that takes input from outside, and what must hold for all of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As its file in `fuzz/fuzz_targets` is called.
    pub name: &'static str,
    /// Panics if something does not hold.
    pub run: fn(&[u8]),
    /// Input worth starting from.
    pub corpus: &'static [&'static [u8]],
}

/// Those of this crate and its features.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "firestore")]
    FIRESTORE_DOCUMENT,
    #[cfg(feature = "firestore")]
    FIRESTORE_URL,
    KEY,
    #[cfg(feature = "_remote")]
    NOTIFICATION,
    #[cfg(feature = "postgres")]
    POSTGRES_ROW,
    #[cfg(feature = "postgres")]
    POSTGRES_URL,
    #[cfg(feature = "redis")]
    REDIS_RECORD,
    #[cfg(feature = "redis")]
    REDIS_URL,
    #[cfg(feature = "sqlite")]
    SQLITE_URL,
];

/// Keys, and the names that stores have for them.
pub const KEY: Target = Target {
    name: "key",
    run: key,
    corpus: &[
        b"payment:42",
        "cafe\u{301}".as_bytes(),
        "\u{1100}\u{1161}\u{11a8}\u{fb1d}\u{2126}".as_bytes(),
        b"fence:app:x",
        b"a\0b",
        &[b'k'; 513],
        "\u{344}\u{344}\u{344}\u{344}\u{344}\u{344}\u{344}\u{344}".as_bytes(),
    ],
};

fn key(data: &[u8]) {
    let text = text(data);
    let key = match Key::new(&text) {
        Ok(key) => key,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(text.is_empty() || text.contains('\0') || text.len() > Key::MAX_BYTES / 3, "{text:?}: {error}");
            return;
        }
    };
    let normal = key.as_str();
    assert!((1..=Key::MAX_BYTES).contains(&normal.len()) && !normal.contains('\0'));
    assert_eq!(Key::new(normal).ok().as_ref(), Some(&key), "normal text is not changed again");
    assert_eq!(key.hash_id(), HashId::of(normal));
    assert_eq!(format!("{key:?}"), format!("Key(#{})", key.hash_id()), "and shows nothing of the key");
    for limit in [60, 200, 1000] {
        let names = StorageKeys::new("app", limit, 26).expect("a short prefix");
        let name = names.lock(&key).expect("a short prefix");
        let counter = names.fence(&name).expect("a short prefix");
        for name in [&name, &counter] {
            assert!(name.starts_with("app:") && name.len() + 26 <= limit, "{name}");
        }
        assert_ne!(name, counter);
    }
}

/// What is UTF-8 in `data`.
pub(crate) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// The parts of `data` between bytes that no UTF-8 contains; empty ones for those that are missing.
pub(crate) fn fields<const N: usize>(data: &[u8]) -> [String; N] {
    let mut parts = data.split(|byte| *byte == 0xff);
    std::array::from_fn(|_| text(parts.next().unwrap_or_default()))
}

/// What no public text may contain.
const SECRET: &str = "s3cret";

fn has_secret(text: &str) -> bool {
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    text.contains(SECRET) || decoded.contains(SECRET)
}

/// That an error shows no secret, wherever it came from.
pub(crate) fn shows_no_secret(error: &Error) {
    let mut said = format!("{error} {error:?} {:?}", error.hint());
    let mut source = error.source();
    while let Some(cause) = source {
        said.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    assert!(!has_secret(&said), "{said}");
}

/// What holds for a record that somebody else may have written, as a store reads it.
#[cfg(any(feature = "firestore", feature = "redis", feature = "postgres"))]
pub(crate) fn record(read: Result<Record, Error>) {
    let record = match read {
        Ok(record) => record,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(error.hint().is_some());
            shows_no_secret(&error);
            return;
        }
    };
    assert_eq!(Key::new(record.key.as_str()).ok().as_ref(), Some(&record.key));
    assert_eq!(record.lock_id.expose().parse::<LockId>().ok(), Some(record.lock_id));
    assert_eq!(Fence::new(record.fence.get()).ok(), Some(record.fence));
    let _ = record.contention(Timestamp::from_millis(0)).free_in();
}

/// What holds for the URLs of every store: `data` as a URL and, if there are `secrets`, as the
/// parts of one with a secret in it, as the password or as one of those options. `parse` is what
/// the store does with a URL before it connects.
pub(crate) fn url(data: &[u8], schemes: &[&str], secrets: &[&str], parse: fn(&str) -> Result<(), Error>) {
    let (scheme, data) = match data.split_first() {
        Some((first, rest)) => (schemes[usize::from(*first) % schemes.len()], rest),
        None => (schemes[0], data),
    };
    check(&format!("{scheme}:{}", text(data)), parse);
    let [user, before, after, place, name] = fields(data);
    // These would begin the options, and the secret would be something else.
    let plain = |text: &str| text.replace(['?', '#'], "");
    let secret = format!("{}{SECRET}{}", plain(&before), plain(&after));
    let mut urls = vec![format!("{scheme}://{}:{secret}@{place}", plain(&user))];
    let option = |text: &str| text.replace(['&', '#'], "");
    for known in secrets {
        let secret = format!("{}{SECRET}{}", option(&before), option(&after));
        urls.push(format!("{scheme}://h/0?{}=1&{known}={secret}", option(&name)));
        // With a letter that is written as its code.
        let (first, rest) = known.split_at(1);
        urls.push(format!("{scheme}://h/0?%{:02x}{rest}={secret}", first.as_bytes()[0]));
    }
    for url in urls.iter().filter(|_| !secrets.is_empty()) {
        let public = check(url, parse);
        assert!(!has_secret(&public), "{url} is shown as {public}");
        if let Err(error) = parse(url) {
            shows_no_secret(&error);
        }
    }
}

/// Returns the public form, after a look at it.
fn check(url: &str, parse: fn(&str) -> Result<(), Error>) -> String {
    let public = public_url(url);
    let scheme = url.split(':').next().unwrap_or_default();
    assert!(public.starts_with(&format!("{scheme}:")), "{url} is shown as {public}");
    assert_eq!(public_url(&public), public, "what is public stays as it is");
    let _ = absolute_url(url, std::path::Path::new("/srv"));
    if names_files(url) {
        return public;
    }
    match parse(url) {
        Ok(()) if public != format!("{scheme}:") => {
            assert!(parse(&public).is_ok(), "{url} can be used, but not as {public}");
        }
        Ok(()) => {}
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArgument, "{url}: {error}"),
    }
    public
}

/// Whether files would be read, which need not be there, or ever end.
fn names_files(url: &str) -> bool {
    let url = percent_decode_str(url).decode_utf8_lossy().to_ascii_lowercase();
    ["ca", "cert", "key", "passfile", "service"].iter().any(|name| url.contains(&format!("{name}=")))
}
