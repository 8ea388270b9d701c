//! SQL clients, programs with the library and programs with the other library exclude each other.

use leasehold::backend::{Acquire, Backend, Release};

use super::{acquire, release};
use crate::support::{connect, server};
use test_support::postgres::{Acquiring, STEPS, number, session};
use test_support::{eventually, granted, held, id, key, request, soon};

#[tokio::test]
async fn each_excludes_every_other_and_continues_its_fences() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let mut last = 0;
    for _ in 0..2 {
        let sql = acquire(&client, "'order:42', holder => 'sql'").await;
        assert_eq!(held(&store, &request("order:42")).await.holder.unwrap().as_str(), "sql");
        assert_eq!(Acquiring::new(&server, "order:42").await.finish().await, None);
        let fence: u64 = sql.fence.as_ref().unwrap().parse().unwrap();
        assert!(fence > last, "{fence} after {last}");
        assert!(release(&client, sql.id()).await);

        let ours = request("order:42");
        let grant = granted(&store, &ours).await;
        assert!(!acquire(&client, "'order:42'").await.granted);
        assert!(grant.fence.get() > fence, "{grant:?} after {fence}");
        assert_eq!(store.release(&ours.lock_id).await.unwrap(), Release::Released);

        let mut other = Acquiring::new(&server, "order:42").await;
        last = other.finish().await.unwrap();
        assert!(last > grant.fence.get(), "{last} after {grant:?}");
        let refused = acquire(&client, "'order:42'").await;
        assert_eq!((refused.granted, refused.held_by), (false, None));
        assert!(release(&client, other.id.expose()).await, "a lock of the other library is released by its id too");
    }
}

#[tokio::test]
async fn a_lock_goes_from_hand_to_hand() {
    let server = server().await;
    let (store, client) = (connect(&server).await, session(&server).await);
    let sql = acquire(&client, "'order:42'").await;
    let id = sql.id().parse().unwrap();
    store.extend(&id, test_support::ttl(60_000)).await.unwrap();
    assert_eq!(store.release(&id).await.unwrap(), Release::Released);
    let ours = request("order:42");
    granted(&store, &ours).await;
    assert!(super::extend(&client, ours.lock_id.expose(), 60.0).await.is_some());
    assert!(release(&client, ours.lock_id.expose()).await);
    assert!(!store.is_locked(&key("order:42")).await.unwrap());
}

#[tokio::test]
async fn between_any_two_steps_of_the_other_library_nobody_comes_in() {
    let server = server().await;
    for steps in 0..=STEPS.len() {
        let name = format!("order:{steps}");
        let mut other = Acquiring::new(&server, &name).await;
        other.advance(steps).await;
        let url = server.url();
        let arguments = format!("'{name}', lock_id => '{}'", id().expose());
        let sql = tokio::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            acquire(&client, &arguments).await
        });
        if (2..STEPS.len()).contains(&steps) {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
            eventually("it waits for the other", async || number(&server, waiting) == 1).await;
        } else if steps < STEPS.len() {
            eventually("it has the lock", async || !test_support::postgres::row(&server, &name).is_empty()).await;
        }
        let theirs = soon("the other", other.finish()).await;
        let ours = soon("an answer", sql).await.unwrap();
        assert_ne!(theirs.is_some(), ours.granted, "after {steps} steps: {ours:?}");
        assert_eq!(number(&server, &format!("SELECT count(*) FROM syncguard_locks WHERE key = '{name}'")), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_has_the_lock_and_every_fence_is_higher() {
    let server = server().await;
    server.sql(
        "CREATE TABLE work (fence text, n integer); CREATE TABLE inside (n integer); INSERT INTO inside VALUES (0)",
    );
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let url = server.url();
            tokio::spawn(async move {
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                let store = leasehold::postgres::Postgres::connect(&format!("{url}?wake_ups=off")).await.unwrap();
                for round in 0..15 {
                    let (id, fence) = loop {
                        // Half of them with the library, half with SQL.
                        if (task + round) % 2 == 0 {
                            let answer = acquire(&client, "'order:42'").await;
                            if answer.granted {
                                break (answer.id().to_owned(), answer.fence.unwrap());
                            }
                        } else if let Acquire::Granted(grant) = store.acquire(&request("order:42")).await.unwrap() {
                            break (grant.lock_id.expose().to_owned(), grant.fence.to_string());
                        }
                        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    };
                    let inside: i32 =
                        client.query_one("UPDATE inside SET n = n + 1 RETURNING n", &[]).await.unwrap().get(0);
                    assert_eq!(inside, 1, "two at once");
                    let order = "INSERT INTO work SELECT $1, count(*) FROM work";
                    client.execute(order, &[&fence]).await.unwrap();
                    client.execute("UPDATE inside SET n = n - 1", &[]).await.unwrap();
                    assert!(release(&client, &id).await);
                }
            })
        })
        .collect();
    for task in tasks {
        soon("the work", task).await.unwrap();
    }
    assert_eq!(number(&server, "SELECT count(*) FROM work"), 90);
    let back = "SELECT count(*) FROM work AS a JOIN work AS b ON b.n = a.n + 1 WHERE b.fence <= a.fence";
    assert_eq!(number(&server, back), 0, "fences only go up");
}
