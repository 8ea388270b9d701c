//! The examples of `docs/sql.md`, as they are printed there, with the clients that they are for.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::migrated;
use serde_json::{Value, json};
use test_servers::Postgres as Server;
use test_support::complaints;

const PAGE: &str = include_str!("../../../../../docs/sql.md");

/// Every example in a language.
fn examples(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = PAGE.split(fence.as_str()).skip(1);
    let blocks: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "no example in {language}");
    blocks
}

/// A server with the rights that the page grants.
async fn server() -> Server {
    let server = Server::start();
    let store = migrated(&server).await;
    server.sql("CREATE ROLE worker LOGIN");
    for grants in examples("sql") {
        server.sql(grants);
    }
    assert_eq!(complaints(&store.examine().await.unwrap()), []);
    server
}

/// Where `scripts/test` puts the drivers.
fn drivers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/sql-clients")
}

/// Runs an example as `worker`. It is read from the standard input.
fn run(server: &Server, program: &str, arguments: &[&str], example: &str) -> String {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PYTHONPATH", drivers().join("python"))
        .env("NODE_PATH", drivers().join("node_modules"));
    for (name, value) in
        [("PGHOST", "127.0.0.1"), ("PGUSER", "worker"), ("PGDATABASE", "postgres"), ("PGAPPNAME", "example")]
    {
        command.env(name, value);
    }
    command
        .env("PGPORT", server.port().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), example.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} fails; scripts/test installs its driver:\n{complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs an example when the lock is free, and when somebody has it.
async fn works(program: &str, arguments: &[&str], language: &str, still_mine: &str) {
    let server = server().await;
    let last_fence = || server.sql("SELECT fence FROM syncguard_fence_counters WHERE key_debug = 'nightly-report'");
    for example in examples(language) {
        for _ in 0..2 {
            let said = run(&server, program, arguments, example);
            let fence = format!("{:0>15}", last_fence());
            assert!(said.contains(&format!("working with fence {fence}")) && said.contains(still_mine), "{said}");
            assert_eq!(server.sql("SELECT count(*) FROM syncguard_locks"), "0", "it was released");
        }
        server.sql("SELECT leasehold_acquire('nightly-report', holder => 'web-1/app')");
        let said = run(&server, program, arguments, example);
        assert!(said.contains("web-1/app has it") && !said.contains("working"), "{said}");
        server.sql("DELETE FROM syncguard_locks");
    }
}

#[tokio::test]
async fn the_example_for_psql_works() {
    works("psql", &["-X", "-v", "ON_ERROR_STOP=1", "-f", "-"], "psql", "still_mine").await;
}

#[tokio::test]
async fn the_example_for_python_works() {
    works("python3", &["-"], "python", "still mine").await;
}

#[tokio::test]
async fn the_example_for_node_works() {
    works("node", &["-"], "javascript", "still mine").await;
}

/// Answers a request to `/rpc` as PostgREST does: in a transaction with the role of the request,
/// with the arguments taken out of the JSON by name, each as the type that the function declares.
fn rpc(server: &Server, request: &str) -> Value {
    let (head, body) = request.split_once("\n\n").unwrap();
    let function = head.trim().strip_prefix("POST /rpc/").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let declared = server.sql(&format!("SELECT pg_get_function_arguments('{function}'::regproc)"));
    let types: Vec<(&str, &str)> = declared
        .split(", ")
        .filter(|argument| !argument.starts_with("OUT "))
        .map(|argument| {
            argument.trim_start_matches("INOUT ").split(" DEFAULT ").next().unwrap().split_once(' ').unwrap()
        })
        .collect();
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    let column = |name: &String| {
        let (_, kind) = types.iter().find(|(declared, _)| declared == name).unwrap_or_else(|| panic!("{name}"));
        format!("\"{name}\" {kind}")
    };
    let columns: Vec<_> = names.iter().map(|name| column(name)).collect();
    let arguments: Vec<_> = names.iter().map(|name| format!("\"{name}\" := body.\"{name}\"")).collect();
    let set: bool = server.sql(&format!("SELECT proretset FROM pg_proc WHERE proname = '{function}'")) == "t";
    let answer = if set { "coalesce(json_agg(answer), '[]')" } else { "json_agg(answer) -> 0" };
    let statement = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
        SELECT set_config('role', 'worker', true), set_config('search_path', 'public', true) \\g /dev/null
        SELECT {answer} FROM (SELECT '{body}'::json AS data) AS payload,
          LATERAL (SELECT * FROM json_to_record(payload.data) AS _({})) AS body,
          LATERAL public.{function}({}) AS answer;
        COMMIT;",
        columns.join(", "),
        arguments.join(", ")
    );
    serde_json::from_str(&server.sql(&statement)).unwrap()
}

#[tokio::test]
async fn the_examples_for_rpc_work_as_far_as_they_can_be_imitated() {
    let server = server().await;
    let [acquire, holder, extend, release] = examples("http").try_into().unwrap();
    assert_eq!(rpc(&server, holder), json!([]), "free");
    let lock = rpc(&server, acquire);
    assert_eq!((&lock["granted"], &lock["held_by"]), (&json!(true), &json!("edge/report")), "{lock}");
    let refused = rpc(&server, acquire);
    assert_eq!((&refused["granted"], &refused["lock_id"]), (&json!(false), &Value::Null), "{refused}");
    let shown = rpc(&server, holder);
    assert_eq!((&shown[0]["metadata"], &shown[0]["fence"]), (&json!({"run": 7}), &lock["fence"]), "{shown}");
    let with_id = |request: &str| request.replace("AAAAAAAAAAAAAAAAAAAAAA", lock["lock_id"].as_str().unwrap());
    assert_eq!(rpc(&server, extend), Value::Null, "not ours");
    assert!(rpc(&server, &with_id(extend)).as_str().unwrap() >= lock["expires_at"].as_str().unwrap());
    assert_eq!(rpc(&server, release), json!(false), "not ours");
    assert_eq!(rpc(&server, &with_id(release)), json!(true));
    assert_eq!(rpc(&server, holder), json!([]));
}
