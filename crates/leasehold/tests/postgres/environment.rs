//! What a URL leaves open is taken from where the server's own clients take it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use leasehold::ErrorCode;
use leasehold::backend::Backend;
use leasehold::postgres::Postgres;
use test_servers::Postgres as Server;
use test_support::{granted, request};

use crate::support::migrated;

/// Set to a URL, it makes the test a program that connects to it.
const URL: &str = "LEASEHOLD_TEST_URL";

const SECRET: &str = "hunter2secret";

/// What a program of its own says that connects to `url` with only these variables of the server's
/// clients.
fn outcome(url: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "environment::the_variables_of_the_servers_own_clients_are_heeded", "--nocapture"]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG")) {
        command.env_remove(name);
    }
    command.env(URL, url).env("HOME", "/nowhere").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(SECRET), "{said}");
    let outcome = said.split("outcome: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    outcome.lines().next().unwrap().to_owned()
}

async fn connect(url: &str) -> Result<String, ErrorCode> {
    let store = Postgres::connect(url).await.map_err(|error| error.code())?;
    let held = request("order:42");
    granted(&store, &held).await;
    store.release(&held.lock_id).await.unwrap();
    Ok("connected".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_variables_of_the_servers_own_clients_are_heeded() {
    if let Ok(url) = std::env::var(URL) {
        println!("\noutcome: {:?}", connect(&url).await);
        return;
    }
    let server = Server::builder().password(SECRET).start();
    migrated(&server).await;
    let port = server.port().to_string();
    let all = [
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", port.as_str()),
        ("PGUSER", "postgres"),
        ("PGDATABASE", "postgres"),
        ("PGPASSWORD", SECRET),
    ];
    let connected = "Ok(\"connected\")";
    assert_eq!(outcome("postgres://", &all), connected);
    for (missing, (name, _)) in all.iter().enumerate() {
        let rest: Vec<_> =
            all.iter().copied().enumerate().filter(|(at, _)| *at != missing).map(|(_, one)| one).collect();
        let outcome = outcome("postgres://", &rest);
        // The database has the user's name by default.
        assert_eq!(outcome == connected, *name == "PGDATABASE", "without {name}: {outcome}");
    }
    let with = |name: &'static str, value: &'static str| [&all[..], &[(name, value)]].concat();
    assert_eq!(outcome("postgres://", &with("PGSSLMODE", "require")), "Err(AuthFailed)");
    assert_eq!(outcome("postgres://?sslmode=disable", &with("PGSSLMODE", "require")), connected);
    assert_eq!(outcome("postgres://", &with("PGSSLMODE", "odd")), "Err(InvalidArgument)");
    assert_eq!(
        outcome("postgres://", &with("PGOPTIONS", "-c default_transaction_read_only=nonsense")),
        "Err(InvalidArgument)"
    );
    assert_eq!(outcome(&server.url_as("postgres", "wrong"), &all), "Err(AuthFailed)", "a URL comes first");

    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("# mine\nelse:*:*:*:wrong\n127.0.0.1:{port}:*:postgres:{SECRET}\n*:*:*:*:wrong\n");
    std::fs::write(file.path(), text).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let passfile = [("PGPASSFILE", file.path().to_str().unwrap())];
    assert_eq!(outcome(&server.url_as("postgres", ""), &passfile), connected);
    assert_eq!(outcome(&server.url_as("nobody", ""), &passfile), "Err(AuthFailed)");
    let home = tempfile::tempdir().unwrap();
    std::fs::copy(file.path(), home.path().join(".pgpass")).unwrap();
    assert_eq!(outcome(&server.url_as("postgres", ""), &[("HOME", home.path().to_str().unwrap())]), connected);
    assert_eq!(outcome(&server.url_as("postgres", ""), &[]), "Err(AuthFailed)");
}
