use super::url;
use crate::fuzzing::{self, Target};

/// URLs of files, which have no secrets.
pub const SQLITE_URL: Target = Target {
    name: "sqlite_url",
    run: |data| fuzzing::url(data, &["sqlite"], &[], parse_url),
    corpus: &[
        b"\x00/var/lib/locks.db",
        b"\x00///var/locks.db?synchronous=full",
        b"\x00a b.db?create=false&synchronous=normal",
        b"\x00//host/file.db",
        b"\x00a%20b.db?create=%66alse",
        b"\x00?create=true",
    ],
};

fn parse_url(url: &str) -> Result<(), crate::Error> {
    url::parse(url.strip_prefix("sqlite:").unwrap_or(url)).map(drop)
}
