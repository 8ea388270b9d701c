//! What others in the same database can see, and whom they can hold up.

use std::future::poll_fn;
use std::time::Duration;

use leasehold::{Locks, Loss, Steal};
use test_support::postgres::{LISTENING, ours, session};
use test_support::{eventually, key, soon};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::support::server;

#[tokio::test]
async fn a_transaction_that_releases_and_stays_open_makes_nobody_deaf() {
    let server = server().await;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let operator = Locks::connect(&server.url()).await.unwrap();
    eventually("nobody listens yet", async || ours(&server, LISTENING) == 0).await;
    let client = session(&server).await;
    let id: String = client.query_one("SELECT lock_id FROM leasehold_acquire('theirs')", &[]).await.unwrap().get(0);
    client.batch_execute("BEGIN").await.unwrap();
    client.query_one("SELECT leasehold_release($1)", &[&id]).await.unwrap();
    let waiter = tokio::spawn(locks.lock("theirs").wait_forever().acquire());
    let guard = locks.lock("mine").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    eventually("the handle listens", async || ours(&server, LISTENING) >= 1).await;
    for _ in 0..3 {
        // Long enough that the waiter has met the transaction.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiter.is_finished());
    }
    operator.force_release("mine").await.unwrap();
    assert_eq!(soon("the notice", guard.lost()).await, Loss::ForceReleased, "told, and not found out");
    client.batch_execute("COMMIT").await.unwrap();
    drop(soon("the lock of the transaction", waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn whoever_listens_learns_no_lock_id() {
    let server = server().await;
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                sender.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    let source =
        "SELECT substring(prosrc FROM 'leasehold:[0-9a-f]+') FROM pg_proc WHERE proname LIKE '%force_release%'";
    let channel: String = client.query_one(source, &[]).await.unwrap().get(0);
    client.batch_execute(&format!("LISTEN \"{channel}\"")).await.unwrap();

    let locks = Locks::connect(&server.url()).await.unwrap();
    eventually("the handle does not listen yet", async || ours(&server, LISTENING) == 0).await;
    let mut ids = Vec::new();
    let victim = locks.lock("k").holder("w").acquire().await.unwrap();
    ids.push(victim.lock_id().expose().to_owned());
    eventually("the handle listens too", async || ours(&server, LISTENING) >= 1).await;
    let steal = Steal::NEVER.with_same_holder();
    let thief = locks.lock("k").holder("w").steal(steal).try_acquire().await.unwrap().expect("it may be stolen");
    ids.push(thief.lock_id().expose().to_owned());
    assert_eq!(soon("the theft", victim.lost()).await, Loss::Stolen);
    locks.force_release(key("k")).await.unwrap();
    assert_eq!(soon("the force", thief.lost()).await, Loss::ForceReleased);
    let mut all = Vec::new();
    eventually("both are heard of", async || {
        all.extend(std::iter::from_fn(|| heard.try_recv().ok()));
        ["S", "R"].iter().all(|letter| all.iter().any(|payload| payload.starts_with(letter)))
    })
    .await;
    assert!(all.iter().all(|payload| ids.iter().all(|id| !payload.contains(id))), "{all:?}");
}
