use super::options::RedisOptions;
use super::record::{Form, Found};
use super::{record, url};
use crate::backend::{AcquireRequest, Grant, Record};
use crate::fuzzing::{self, Target, fields};
use crate::{Fence, Holder, Key, LockId, Metadata, Timestamp, Ttl};

/// URLs of servers, clusters, sentinels and sockets.
pub const REDIS_URL: Target = Target {
    name: "redis_url",
    run: |data| fuzzing::url(data, SCHEMES, &["pass", "sentinel_password", "password"], parse_url),
    corpus: &[
        b"\x00//user:p@ss@host:6379/0",
        b"\x00me\xffx\xff@\xffh:6379/3\xffprefix",
        b"\x01me\xff:\xff%40\xff[::1]:7000,b:1\xffp%61ss",
        b"\x02///run/r.sock?db=1&user=me&pass=x",
        b"\x03//h:26379,i/mymaster/4?sentinel_user=u&sentinel_password=x",
        b"\x00//h?prefix=team@app&timeout=2.5s",
        b"\x00//u:pa?ss@h/0",
        b"\x00//user:1?a=x@h",
        b"\x00//h/99999999999999999999",
    ],
};

const SCHEMES: &[&str] = &["redis", "rediss", "unix", "redis+sentinel"];

fn parse_url(url: &str) -> Result<(), crate::Error> {
    url::parse(url, RedisOptions::default()).map(drop)
}

/// Records as anybody may have written them, and as we do.
pub const REDIS_RECORD: Target = Target {
    name: "redis_record",
    run: |data| {
        foreign(data);
        ours(data);
    },
    corpus: &[
        br#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":1700000030000,"acquiredAtMs":1.7e12,"key":"a","fence":"000000000000007"}"#,
        br#"{"lockId":"s3cret","expiresAtMs":"s3cret","acquiredAtMs":0,"key":"a","fence":"1"}"#,
        br#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":-1e999,"acquiredAtMs":1e308,"key":"","fence":"999999999999999","holder":7}"#,
        br#"{"lockId":"abcdefghijklmnopqrstuv","expiresAtMs":1700000030000,"mode":"permit","slot":3,"of":5,"on":"p:a","acquiredAtMs":1700000000000,"key":"a","fence":"000000000000007"}"#,
        br#"{"lockId":"abcdefghijklmnopqrstuv","untilMs":1700000030000,"called":false,"sinceMs":1,"mode":"shared","turn":"x","on":"p:a","key":"a","holder":"s3cret"}"#,
        b"order:42\xffhost/\"job\"\xff{\"lines\":[],\"total\":12345678901234567,\"x\":1e300}",
        b"\"s3cret\"",
    ],
};

fn foreign(data: &[u8]) {
    for form in [Form::Record, Form::Grant] {
        fuzzing::record(Found::parse(form, data).and_then(Found::into_record));
    }
    let place = record::parse_place(data).map(|place| Record::new(place.key, &grant_of(place.lock_id)));
    fuzzing::record(place);
}

/// A grant that says nothing but whose it is.
fn grant_of(id: LockId) -> Grant {
    Grant::new(id, Fence::MAX, Timestamp::from_millis(0), Timestamp::from_millis(0))
}

/// What we write is read as it was meant.
fn ours(data: &[u8]) {
    let [key, holder, metadata] = fields(data);
    let (Ok(key), Ok(holder)) = (Key::new(&key), Holder::new(&holder)) else { return };
    let metadata: Metadata = serde_json::from_str(&metadata).unwrap_or_default();
    let id: LockId = "abcdefghijklmnopqrstuv".parse().expect("a lock id");
    let wanted = AcquireRequest::new(key, id, Ttl::default()).with_holder(holder).with_metadata(metadata);
    let (key, rest) = record::parts(&wanted);
    let id = id.expose();
    let text = format!(
        r#"{{"lockId":"{id}","expiresAtMs":1700000030000,"acquiredAtMs":1700000000000,"key":{key},"fence":"000000000000007"{rest}"#
    );
    let read = record::parse(text.as_bytes()).and_then(record::into_record);
    let read = read.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!((read.key, read.lock_id, read.fence.get()), (wanted.key, wanted.lock_id, 7));
    assert_eq!((read.holder, read.metadata), (Some(wanted.holder), wanted.metadata));
    assert_eq!((read.acquired_at.as_millis(), read.expires_at.as_millis()), (1_700_000_000_000, 1_700_000_030_000));
}
