//! Records that the other library wrote are locks like ours.

use leasehold::{Absence, Backend, Extend, ForceRelease, ListRequest, LockId, LookupBy, Release, Timestamp};
use serde_json::{Value, json};
use test_servers::Redis as Server;

use crate::support::{connect, exists, get, granted, held, index_of, json, key, now, pttl, request, stealing, ttl};

/// Ways to write the same record.
const STYLES: [Style; 5] = [
    |record| record.to_string(),
    |record| serde_json::to_string_pretty(record).unwrap(),
    |record| {
        let field = |name: &str| format!("\"{name}\" :  {}", record[name]);
        let fields = ["fence", "key", "acquiredAtMs", "expiresAtMs", "lockId"].map(field);
        format!(" {{ {} }} ", fields.join(" ,\n"))
    },
    |record| {
        let field = |name: &str| format!("\"{name}\":{}", record[name]);
        format!("{{{}}}", ["lockId", "expiresAtMs", "acquiredAtMs", "key", "fence"].map(field).join(","))
    },
    // As JavaScript and Lua write large numbers when they are left to themselves.
    |record| record.to_string().replace("\"fence\"", "\"note\":1.5e300,\"fence\""),
];

type Style = fn(&Value) -> String;

struct Foreign {
    key: String,
    id: LockId,
    acquired_at: u64,
    expires_at: u64,
}

impl Foreign {
    fn name(&self) -> String {
        format!("syncguard:{}", self.key)
    }
}

/// Writes a record by hand, held for `held_for` milliseconds, with 30 seconds left.
fn write(server: &Server, key: &str, held_for: u64, style: Style) -> Foreign {
    let (now, id) = (now(server), LockId::random().unwrap());
    let foreign = Foreign { key: key.to_owned(), id, acquired_at: now - held_for, expires_at: now + 30_000 };
    let counter = format!("syncguard:fence:syncguard:{key}");
    let fence: u64 = server.cli(&["INCR", &counter]).parse().unwrap();
    let record = json!({
        "lockId": id.expose(), "expiresAtMs": foreign.expires_at, "acquiredAtMs": foreign.acquired_at,
        "key": key, "fence": format!("{fence:015}"),
    });
    assert_eq!(server.cli(&["SET", &foreign.name(), &style(&record), "PX", "30000"]), "OK");
    assert_eq!(server.cli(&["SET", &index_of(&id), &foreign.name(), "PX", "30000"]), "OK");
    foreign
}

#[tokio::test]
async fn they_are_held_against_us_by_somebody_without_a_name() {
    let server = Server::start();
    let store = connect(&server).await;
    for (number, style) in STYLES.into_iter().enumerate() {
        let foreign = write(&server, &format!("order:{number}"), 5_000, style);
        let contention = held(&store, &request(&foreign.key)).await;
        assert_eq!(contention.holder, None);
        assert_eq!(contention.acquired_at, Timestamp::from_millis(foreign.acquired_at));
        assert_eq!(contention.expires_at, Timestamp::from_millis(foreign.expires_at));
        assert!(store.is_locked(&key(&foreign.key)).await.unwrap());
    }
}

#[tokio::test]
async fn they_are_found_by_key_by_id_and_in_a_listing() {
    let server = Server::start();
    let store = connect(&server).await;
    let written: Vec<_> = STYLES
        .into_iter()
        .enumerate()
        .map(|(number, style)| write(&server, &format!("order:{number}"), 5_000, style))
        .collect();
    let listed = store.list(&ListRequest::new("order:")).await.unwrap();
    assert_eq!(listed.records.len(), written.len());
    for foreign in &written {
        let record = store.lookup(LookupBy::Key(&key(&foreign.key))).await.unwrap().unwrap();
        assert_eq!(record.key.as_str(), foreign.key);
        assert_eq!((record.lock_id, record.fence.get()), (foreign.id, 1));
        assert_eq!(record.acquired_at.as_millis(), foreign.acquired_at);
        assert_eq!(record.expires_at.as_millis(), foreign.expires_at);
        assert_eq!(record.holder, None);
        assert_eq!(store.lookup(LookupBy::Id(&foreign.id)).await.unwrap().unwrap(), record);
        assert!(listed.records.contains(&record));
    }
}

#[tokio::test]
async fn they_can_be_extended_and_released_by_their_id() {
    let server = Server::start();
    let store = connect(&server).await;
    for style in STYLES {
        let foreign = write(&server, "order:42", 5_000, style);
        let mut expected = json(&server, &foreign.name());
        let Extend::Extended { expires_at } = store.extend(&foreign.id, ttl(90_000)).await.unwrap() else {
            panic!("not extended");
        };
        assert!(expires_at.as_millis() > foreign.expires_at);
        expected["expiresAtMs"] = expires_at.as_millis().into();
        assert_eq!(json(&server, &foreign.name()), expected);
        for name in [&foreign.name(), &index_of(&foreign.id)] {
            assert!((60_000..=91_000).contains(&pttl(&server, name)), "{name}");
        }
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Released);
        assert!(!exists(&server, &foreign.name()) && !exists(&server, &index_of(&foreign.id)));
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.extend(&foreign.id, ttl(1000)).await.unwrap(), Extend::Absent(Absence::NotFound));
        assert!(!exists(&server, &foreign.name()), "an extend makes nothing");
    }
}

#[tokio::test]
async fn they_can_be_ended_by_force() {
    let server = Server::start();
    let store = connect(&server).await;
    for style in STYLES {
        let foreign = write(&server, "order:42", 5_000, style);
        let ForceRelease::Released(record) = store.force_release(&key("order:42")).await.unwrap() else {
            panic!("not released");
        };
        assert_eq!(record.lock_id, foreign.id);
        assert!(!exists(&server, &foreign.name()) && !exists(&server, &index_of(&foreign.id)));
    }
}

#[tokio::test]
async fn they_can_be_stolen_when_they_are_old_and_not_before() {
    let server = Server::start();
    let store = connect(&server).await;
    for style in STYLES {
        let foreign = write(&server, "order:42", 60_000, style);
        let counter = "syncguard:fence:syncguard:order:42";
        let last: u64 = get(&server, counter).parse().unwrap();
        held(&store, &stealing("order:42", 120_000)).await;
        let thief = stealing("order:42", 50_000);
        assert!(granted(&store, &thief).await.fence.get() > last);
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::NotFound));
        assert_eq!(store.release(&thief.lock_id).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn they_end_one_second_after_their_expiry_even_if_the_server_keeps_them() {
    let server = Server::start();
    let store = connect(&server).await;
    for style in STYLES {
        let foreign = write(&server, "order:42", 60_000, style);
        let expire = |ago: u64| {
            let raw = get(&server, &foreign.name());
            let expiry = json(&server, &foreign.name())["expiresAtMs"].to_string();
            let past = (now(&server) - ago).to_string();
            server.cli(&["SET", &foreign.name(), &raw.replace(&expiry, &past), "KEEPTTL"]);
        };
        expire(0);
        held(&store, &request("order:42")).await;
        expire(1000);
        assert_eq!(store.extend(&foreign.id, ttl(1000)).await.unwrap(), Extend::Absent(Absence::Expired));
        assert_eq!(store.release(&foreign.id).await.unwrap(), Release::Absent(Absence::Expired));
        assert!(!store.is_locked(&key("order:42")).await.unwrap());
        assert!(store.lookup(LookupBy::Id(&foreign.id)).await.unwrap().is_none());
        assert_eq!(store.force_release(&key("order:42")).await.unwrap(), ForceRelease::Absent);
        let mine = request("order:42");
        granted(&store, &mine).await;
        store.release(&mine.lock_id).await.unwrap();
    }
}

#[tokio::test]
async fn fields_we_do_not_know_survive_our_extend_to_the_letter() {
    let server = Server::start();
    let store = connect(&server).await;
    let id = LockId::random().unwrap();
    let expiry = now(&server) + 30_000;
    let fields = |rest: &str| {
        format!(
            r#"{{"fence":"000000000000001",{rest},"expiresAtMs": {expiry} ,"key":"order:42","acquiredAtMs":5,"lockId":"{}"}}"#,
            id.expose()
        )
    };
    for rest in [
        r#""metadata":{"lines":[],"none":{},"deep":[[],[[]],{"a":[]}]}"#,
        r#""metadata":{"big":9007199254740993,"bigger":123456789012345678901234567890,"small":0.1000000000000000055}"#,
        r#""metadata":{"text":"\u00e9\/ \"expiresAtMs\":5 é 日本"},"appVersion":"1.10","nothing":null"#,
        r#""holder":"db-1/report","owner":{"pid":7,"tags":["a","b"]},"flag":true"#,
    ] {
        let raw = fields(rest);
        server.cli(&["SET", "syncguard:order:42", &raw]);
        server.cli(&["SET", &index_of(&id), "syncguard:order:42"]);
        let Extend::Extended { expires_at } = store.extend(&id, ttl(60_000)).await.unwrap() else {
            panic!("not extended: {raw}");
        };
        let unspaced = |text: &str| text.replace(": ", ":").replace(" ,", ",");
        let expected = raw.replace(&expiry.to_string(), &expires_at.as_millis().to_string());
        assert_eq!(unspaced(&get(&server, "syncguard:order:42")), unspaced(&expected));
    }
}

#[tokio::test]
async fn notes_about_an_expiry_are_not_taken_for_the_expiry() {
    let server = Server::start();
    let store = connect(&server).await;
    let id = LockId::random().unwrap();
    let record = |expiry: u64| {
        json!({
            "aNote": { "expiresAtMs": 5 }, "acquiredAtMs": 5, "expiresAtMs": expiry, "fence": "000000000000001",
            "key": "order:42", "lockId": id.expose(), "metadata": { "expiresAtMs": 7, "lines": ["a"] },
        })
    };
    server.cli(&["SET", "syncguard:order:42", &record(now(&server) + 30_000).to_string()]);
    server.cli(&["SET", &index_of(&id), "syncguard:order:42"]);
    let Extend::Extended { expires_at } = store.extend(&id, ttl(60_000)).await.unwrap() else { panic!("not extended") };
    assert_eq!(json(&server, "syncguard:order:42"), record(expires_at.as_millis()));
}
