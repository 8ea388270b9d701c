use super::{Postgres, record};
use crate::backend::AcquireRequest;
use crate::fuzzing::{self, Target, fields};
use crate::{Holder, Key, LockId, Metadata, Ttl};

/// URLs of databases.
pub const POSTGRES_URL: Target = Target {
    name: "postgres_url",
    run: |data| fuzzing::url(data, SCHEMES, &["password", "sslpassword"], parse_url),
    corpus: &[
        b"\x00//user:p%40ss@host:5432/app?sslmode=require",
        b"\x00//a:1,b:2/app?target_session_attrs=read-write&schema=app",
        b"\x01me\xffp\xff@ss\xffdb/app\xffuser",
        b"\x00//db/app?user=me&password=p@ss",
        b"\x00//%2Fvar%2Frun%2Fpostgresql/app?host=/tmp&port=1",
        b"\x00host=h password=x",
        b"\x00//h/db?pool_size=0&timeout=1.5s&wake_ups=off",
        b"\x00//h?options=-c%20search_path%3Dapp&connect_timeout=-1",
    ],
};

const SCHEMES: &[&str] = &["postgres", "postgresql"];

fn parse_url(url: &str) -> Result<(), crate::Error> {
    Postgres::migration_for(url).map(drop)
}

/// Rows as anybody may have written them, and as we do.
pub const POSTGRES_ROW: Target = Target {
    name: "postgres_row",
    run: |data| {
        foreign(data);
        ours(data);
    },
    corpus: &[
        b"order:42\xffabcdefghijklmnopqrstuv\xff000000000000007\xff1700000000000\xff1700000030000\xff{\"lockId\":\"abcdefghijklmnopqrstuv\",\"holder\":\"h\",\"metadata\":\"{}\"}",
        b"order:42\xffs3cret\xff7\xff-1\xff9223372036854775807\xff[\"s3cret\"]",
        b"order:42\xffhost/job\xff{\"a\":\"\\u0000\",\"b\":[[[]]]}",
    ],
};

fn foreign(data: &[u8]) {
    let [key, lock_id, fence, since, until, details] = fields(data);
    let number = |text: &str| text.parse::<i64>().unwrap_or(i64::MIN);
    let stored = record::stored(key, lock_id, fence, number(&since), number(&until), Some(&details));
    fuzzing::record(record::into_record(stored));
}

/// What we write is read as it was meant.
fn ours(data: &[u8]) {
    let [key, holder, metadata] = fields(data);
    let (Ok(key), Ok(holder)) = (Key::new(&key), Holder::new(&holder)) else { return };
    let metadata: Metadata = serde_json::from_str(&metadata).unwrap_or_default();
    let id: LockId = "abcdefghijklmnopqrstuv".parse().expect("a lock id");
    let wanted = AcquireRequest::new(key, id, Ttl::default()).with_holder(holder).with_metadata(metadata);
    let details = record::details(&wanted).to_string();
    let (key, id, fence) = (wanted.key.as_str().to_owned(), id.expose().to_owned(), "000000000000007".to_owned());
    let stored = record::stored(key, id, fence, 1_700_000_000_000, 1_700_000_030_000, Some(&details));
    let read = record::into_record(stored).unwrap_or_else(|error| panic!("{details}: {error:?}"));
    assert_eq!((read.key, read.lock_id, read.fence.get()), (wanted.key, wanted.lock_id, 7));
    assert_eq!((read.holder, read.metadata), (Some(wanted.holder), wanted.metadata));
    assert_eq!((read.acquired_at.as_millis(), read.expires_at.as_millis()), (1_700_000_000_000, 1_700_000_030_000));
}
