//! SQL clients take locks for themselves alone, pass the line, and call the first in it like
//! everybody.

use leasehold::backend::{Absence, Backend, Event, Extend, Release, Topic};
use test_support::postgres::session;
use test_support::{granted, held, request, soon, ttl};

use super::{acquire, extend, release};
use crate::support::{connect, joining, permit, server, shared};

#[tokio::test]
async fn readers_and_permits_are_in_their_way_and_they_in_theirs() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    for mine in [shared("order:42"), request("order:42").with_mode(permit(3))] {
        let grant = granted(&store, &mine).await;
        let refused = acquire(&client, "'order:42'").await;
        assert_eq!((refused.granted, refused.lock_id.as_ref()), (false, None));
        assert_eq!(refused.held_by.as_deref(), Some(mine.holder.as_str()));
        assert_eq!(refused.expires_at, i64::try_from(grant.expires_at.as_millis()).unwrap());
        store.release(&mine.lock_id).await.unwrap();
        let sql = acquire(&client, "'order:42', holder => 'sql'").await;
        assert_eq!(held(&store, &mine).await.holder.unwrap().as_str(), "sql");
        assert!(release(&client, sql.id()).await);
    }
}

#[tokio::test]
async fn the_oldest_of_several_holders_is_the_one_they_are_shown() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let [oldest, other] = ["web-1/reader", "web-2/reader"]
        .map(|name| shared("order:42").with_holder(leasehold::Holder::new(name).unwrap()));
    let fence = granted(&store, &oldest).await.fence.to_string();
    granted(&store, &other).await;
    let shown = async || -> Vec<(Option<String>, String)> {
        let rows = client.query("SELECT held_by, fence FROM leasehold_holder('order:42')", &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    assert_eq!(shown().await, [(Some("web-1/reader".to_owned()), fence)]);
    assert_eq!(acquire(&client, "'order:42'").await.held_by.as_deref(), Some("web-1/reader"));
    for reader in [&oldest, &other] {
        store.release(&reader.lock_id).await.unwrap();
    }
    // Kept for the first in line is not held.
    let (mine, waits) = (request("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &waits).await;
    store.release(&mine.lock_id).await.unwrap();
    assert_eq!(shown().await, []);
    let refused = acquire(&client, "'order:42'").await;
    assert_eq!((refused.granted, refused.held_by.as_deref()), (false, Some(waits.holder.as_str())));
}

#[tokio::test]
async fn their_release_calls_the_first_in_line_and_nobody_else() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let (first, second) = (joining("order:42"), joining("order:42"));
    let sql = acquire(&client, "'order:42'").await;
    held(&store, &first).await;
    held(&store, &second).await;
    let mut turn = store.subscribe(Topic::Turn(&first.key, &first.lock_id)).await.unwrap();
    let mut not_yet = store.subscribe(Topic::Turn(&second.key, &second.lock_id)).await.unwrap();
    assert!(release(&client, sql.id()).await);
    assert_eq!(soon("the call", turn.next()).await, Some(Event::Freed));
    assert!(!acquire(&client, "'order:42'").await.granted, "it is kept for the one who was called");
    granted(&store, &first).await;
    let told = tokio::time::timeout(std::time::Duration::from_millis(100), not_yet.next()).await;
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test]
async fn whoever_knows_the_id_of_a_reader_or_of_a_place_can_use_it_from_sql() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let (mine, waits) = (shared("order:42"), joining("order:42"));
    granted(&store, &mine).await;
    held(&store, &waits).await;
    assert!(extend(&client, mine.lock_id.expose(), 60.0).await.is_some());
    assert!(extend(&client, waits.lock_id.expose(), 60.0).await.is_none());
    assert!(!release(&client, waits.lock_id.expose()).await, "a place is no lock");
    assert_eq!(store.inspect(&mine.key).await.unwrap().waiters, []);
    assert!(release(&client, mine.lock_id.expose()).await);
    assert_eq!(store.extend(&mine.lock_id, ttl(1000)).await.unwrap(), Extend::Absent(Absence::NotFound));
    assert_eq!(store.release(&mine.lock_id).await.unwrap(), Release::Absent(Absence::NotFound));
}

/// The placeholder has an id that is none.
#[tokio::test]
async fn a_placeholder_cannot_be_extended_or_released() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    granted(&store, &shared("order:42")).await;
    let id = server.sql("SELECT lock_id FROM syncguard_locks");
    for call in [format!("leasehold_release('{id}')"), format!("leasehold_extend('{id}', 60)")] {
        let error = client.query(&format!("SELECT {call}"), &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "LH012", "{error:?}");
    }
}
