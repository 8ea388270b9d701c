//! The program, which can be killed.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, sleep};

use crate::common::{Client, DEADLINE, delete, number_in, set};
use crate::listener::documents;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn command(directory: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firestore-double"));
    command.current_dir(directory).args(["--journal", "--port", &port.to_string()]);
    command
}

async fn run(directory: &Path, port: u16) -> (Program, Client) {
    let program = Program(command(directory, port).spawn().unwrap());
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert!(start.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
    (program, Client::connect(&format!("http://127.0.0.1:{port}")).await)
}

#[tokio::test]
async fn what_was_answered_survives_sigkill() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (program, client) = run(directory.path(), port).await;
    client.write(vec![set("a", 1), set("b", 1)]).await;
    let (listener, _) = client.listen_to(documents(&["a", "b"])).await;
    let last = client.write(vec![set("a", 2), delete("b")]).await.commit_time.unwrap();
    let (transaction, _) = client.begin_reading("a").await.unwrap();
    let before = client.get("a").await;
    drop(program);

    let (_program, client) = run(directory.path(), port).await;
    assert_eq!(client.get("a").await, before);
    assert_eq!(client.get("b").await, None);
    // Tokens stay good; transactions do not.
    let mut resumed = client.listen().await;
    resumed.add(1, documents(&["a", "b"]), Some(&listener.token)).await;
    assert_eq!(resumed.hear().await, "+1 a=2[1] b deleted[1] *1 .");
    client.commit(&transaction, vec![]).await.unwrap_err();
    let next = client.write(vec![set("a", 3)]).await.commit_time.unwrap();
    assert!((next.seconds, next.nanos) > (last.seconds, last.nanos));
    assert_eq!(number_in(&client.get("a").await.unwrap(), "n"), 3);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = command(directory.path(), port).stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("Address already in use"));
}
