//! The types of the vocabulary: what they take, what they refuse, and that they tell no secrets.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use leasehold::backend::StorageKeys;
use leasehold::{ErrorCode, Fence, HashId, Holder, Key, LockId, Metadata, TIME_TOLERANCE, Timestamp, Ttl};
use proptest::prelude::*;
use serde_json::{Value, json};

fn vectors() -> Value {
    serde_json::from_str(include_str!("data/storage-keys.json")).unwrap()
}

fn section(name: &str) -> Vec<Value> {
    let section = vectors()[name].as_array().unwrap().clone();
    assert!(!section.is_empty());
    section
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

#[test]
fn every_hash_vector_is_reproduced() {
    for vector in section("hash") {
        assert_eq!(HashId::of(text(&vector, "input")).to_string(), text(&vector, "hash"), "{vector}");
    }
}

#[test]
fn every_storage_key_vector_is_reproduced() {
    let mut names = 0;
    for vector in section("storage") {
        let size = |field: &str| usize::try_from(vector[field].as_u64().unwrap()).unwrap();
        let keys = StorageKeys::new(text(&vector, "prefix"), size("limit"), size("reserve"));
        let lock = keys
            .as_ref()
            .map_err(leasehold::Error::code)
            .and_then(|keys| keys.lock(&Key::new(text(&vector, "key")).unwrap()).map_err(|error| error.code()));
        if vector.get("error").is_some() {
            assert_eq!(lock, Err(ErrorCode::InvalidArgument), "{vector}");
            continue;
        }
        let lock = lock.unwrap();
        assert_eq!(lock, text(&vector, "storageKey"), "{vector}");
        let fence = keys.unwrap().fence(&lock).map_err(|error| error.code());
        if vector.get("fenceError").is_some() {
            assert_eq!(fence, Err(ErrorCode::InvalidArgument), "{vector}");
        } else {
            assert_eq!(fence.as_deref(), Ok(text(&vector, "fenceKey")), "{vector}");
            names += 1;
        }
    }
    assert!(names > 400, "only {names} fence keys were compared");
}

#[test]
fn every_lock_id_vector_is_reproduced() {
    for vector in section("lockIds") {
        let parsed = text(&vector, "lockId").parse::<LockId>();
        assert_eq!(parsed.is_ok(), vector["valid"].as_bool().unwrap(), "{vector}");
        if let Err(error) = parsed {
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
        }
    }
}

#[test]
fn every_key_vector_is_reproduced() {
    for vector in section("keys") {
        let key = Key::new(text(&vector, "key"));
        let bytes = key.as_ref().ok().map(|key| key.as_str().len() as u64);
        assert_eq!(bytes, vector["normalizedBytes"].as_u64(), "{vector}");
        assert_eq!(key.is_ok(), vector["valid"].as_bool().unwrap(), "{vector}");
    }
}

#[test]
fn every_fence_vector_is_reproduced() {
    for vector in section("fences") {
        let fence: Fence = text(&vector, "fence").parse().unwrap();
        assert_eq!(fence.get(), vector["value"].as_u64().unwrap());
        assert_eq!(fence.to_string(), text(&vector, "fence"));
    }
}

#[test]
fn keys_with_nul_are_refused() {
    assert_eq!(Key::new("a\0b").unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[test]
fn a_fence_beyond_the_highest_is_an_internal_error() {
    assert_eq!(Fence::new(900_000_000_000_000).unwrap(), Fence::MAX);
    assert_eq!(Fence::new(900_000_000_000_001).unwrap_err().code(), ErrorCode::Internal);
    assert!(Fence::next(Some(Fence::MAX), Timestamp::now()).is_err());
    for text in ["", "1", "0000000000000001", "00000000000000a", "+00000000000001"] {
        assert!(text.parse::<Fence>().is_err(), "{text:?}");
    }
}

#[test]
fn the_next_fence_is_above_the_last_and_never_below_the_clock() {
    let now = Timestamp::from_micros(1_794_800_000_000_000);
    assert_eq!(Fence::next(None, now).unwrap().get(), 17_948_000_000_000);
    let ahead = Fence::new(20_000_000_000_000).unwrap();
    assert_eq!(Fence::next(Some(ahead), now).unwrap().get(), 20_000_000_000_001);
    assert_eq!(Fence::next(None, Timestamp::from_millis(0)).unwrap().get(), 1);
}

#[test]
fn ttls_are_whole_milliseconds_from_one_to_ten_years() {
    assert_eq!(Ttl::from_millis(1).unwrap().as_duration(), Duration::from_millis(1));
    assert_eq!(Ttl::new(Ttl::MAX.as_duration()).unwrap(), Ttl::MAX);
    for wrong in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(2500),
        Ttl::MAX.as_duration() + Duration::from_millis(1),
        Duration::MAX,
    ] {
        assert_eq!(Ttl::new(wrong).unwrap_err().code(), ErrorCode::InvalidArgument, "{wrong:?}");
    }
}

#[test]
fn a_lock_is_live_for_exactly_the_tolerance_past_its_expiry() {
    let expiry = Timestamp::from_millis(1_000_000);
    let after = |millis: u64| Timestamp::from_millis(1_000_000 + millis);
    assert!(expiry.is_live(after(0)));
    assert!(expiry.is_live(after(999)));
    assert!(!expiry.is_live(after(1000)));
    assert_eq!(TIME_TOLERANCE, Duration::from_millis(1000));
}

#[test]
fn holders_are_short_single_line_names_and_default_to_host_and_program() {
    assert!(Holder::new(&"x".repeat(255)).is_ok());
    for wrong in ["", "a\nb", "a\u{7f}", &"x".repeat(256)] {
        assert_eq!(Holder::new(wrong).unwrap_err().code(), ErrorCode::InvalidArgument, "{wrong:?}");
    }
    let name = Holder::default().to_string();
    let (host, program) = name.split_once('/').unwrap();
    assert!(!host.is_empty() && program.contains("vocabulary"), "{name}");
    assert!(!name.contains(&std::process::id().to_string()), "the name outlives the process: {name}");
}

#[test]
fn metadata_is_an_object_of_at_most_four_kibibytes() {
    let of_size = |bytes: usize| Metadata::new(json!({ "k": "x".repeat(bytes - 8) }));
    assert_eq!(of_size(4096).unwrap().to_json().len(), 4096);
    assert_eq!(of_size(4097).unwrap_err().code(), ErrorCode::InvalidArgument);
    for wrong in [json!(null), json!(1), json!("text"), json!([])] {
        assert_eq!(Metadata::new(wrong).unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    assert_eq!(Metadata::default().to_json(), "{}");

    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "in": inner }));
    assert!(Metadata::new(nested(32)).is_ok());
    assert_eq!(Metadata::new(nested(33)).unwrap_err().code(), ErrorCode::InvalidArgument);
    let lists = (0..1000).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(Metadata::new(json!({ "in": lists })).unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[test]
fn nothing_prints_a_raw_key_or_lock_id_by_accident() {
    let key = Key::new("user:alice@example.org").unwrap();
    let id = LockId::random().unwrap();
    let request = leasehold::backend::AcquireRequest::new(key.clone(), id, Ttl::default());
    let grant = leasehold::Grant::new(id, Fence::new(1).unwrap(), Timestamp::now(), Timestamp::now());
    let record = leasehold::backend::Record::new(key.clone(), &grant);
    let shown = format!("{key:?} {id:?} {request:?} {record:?} {:?}", record.grant());
    assert!(!shown.contains("alice") && !shown.contains(id.expose()), "{shown}");
    assert!(shown.contains(&key.hash_id().to_string()) && shown.contains(&id.hash_id().to_string()));
}

#[test]
fn values_survive_json() {
    fn check<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, json: &str) {
        assert_eq!(serde_json::to_string(value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), *value);
    }
    check(&Key::new("a:b").unwrap(), r#""a:b""#);
    check(&Fence::new(42).unwrap(), r#""000000000000042""#);
    check(&Ttl::default(), "30000");
    check(&Holder::new("h/p").unwrap(), r#""h/p""#);
    check(&HashId::of("a"), r#""0000006100000123000002a7""#);
    check(&Timestamp::from_millis(5), "5");
    check(&Metadata::new(json!({"a": 1})).unwrap(), r#"{"a":1}"#);
    let exact = Metadata::new(json!({"a": 1.1604207053128716e215})).unwrap();
    assert_eq!(serde_json::from_str::<Metadata>(&exact.to_json()).unwrap(), exact);
    assert!(serde_json::from_str::<Key>(r#""""#).is_err(), "what is read is checked as well");
    assert!(serde_json::from_str::<Ttl>("0").is_err());
}

#[test]
fn lock_ids_are_not_repeated() {
    let ids: std::collections::HashSet<_> = (0..10_000).map(|_| LockId::random().unwrap()).collect();
    assert_eq!(ids.len(), 10_000);
}

proptest! {
    #[test]
    fn any_text_is_a_key_or_a_typed_error(text in "\\PC{0,600}") {
        match Key::new(&text) {
            Ok(key) => {
                prop_assert!(!key.as_str().is_empty() && key.as_str().len() <= 512);
                prop_assert_eq!(&Key::new(key.as_str()).unwrap(), &key, "normalising twice changes nothing");
            }
            Err(error) => prop_assert_eq!(error.code(), ErrorCode::InvalidArgument),
        }
    }

    #[test]
    fn fences_sort_as_text_as_they_do_as_numbers(a in 0u64..=900_000_000_000_000, b in 0u64..=900_000_000_000_000) {
        let (a, b) = (Fence::new(a).unwrap(), Fence::new(b).unwrap());
        prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        prop_assert_eq!(a.to_string().parse::<Fence>().unwrap(), a);
    }

    #[test]
    fn storage_keys_fit_and_different_keys_have_different_names(
        a in "[a-z:é]{1,200}", b in "[a-z:é]{1,200}", limit in 60usize..300
    ) {
        let keys = StorageKeys::new("app", limit, 26).unwrap();
        let (a, b) = (Key::new(&a).unwrap(), Key::new(&b).unwrap());
        let (name_a, name_b) = (keys.lock(&a).unwrap(), keys.lock(&b).unwrap());
        prop_assert!(name_a.len() + 26 <= limit);
        prop_assert_eq!(a == b, name_a == name_b);
        prop_assert_eq!(a == b, keys.fence(&name_a).unwrap() == keys.fence(&name_b).unwrap());
    }
}

#[test]
fn a_new_lock_id_is_never_taken_for_an_option() {
    for _ in 0..1000 {
        assert!(!LockId::random().unwrap().expose().starts_with('-'));
    }
}
