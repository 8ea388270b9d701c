use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use firestore_double::{Double, Options};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::firestore_client::FirestoreClient;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::transaction_options::{Mode, ReadOnly};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    BeginTransactionRequest, CommitRequest, GetDocumentRequest, TransactionOptions,
};
use serde_json::{Value as Json, json};
use test_servers::Certificates;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Request};

use crate::common::{Client, DATABASE, World, name, set, start, start_with};

async fn closed() -> World {
    start_with(Options { token_port: Some(0), ..Options::default() }).await
}

/// What the token endpoint says to a service account.
async fn ask(world: &World, account: &str) -> (String, Json) {
    let claims = BASE64_URL_SAFE_NO_PAD.encode(json!({"iss": account}).to_string());
    let body = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=e30.{claims}.x");
    let mut stream = TcpStream::connect(world.double.token_address().unwrap()).await.unwrap();
    let request = format!("POST /token HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

async fn token(world: &World, account: &str) -> String {
    let (status, answer) = ask(world, account).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!((&answer["expires_in"], &answer["token_type"]), (&json!(3600), &json!("Bearer")));
    answer["access_token"].as_str().unwrap().to_owned()
}

/// The codes of a read, a commit, and the begin of a read-only and of another transaction.
async fn codes(world: &World, token: Option<&str>) -> [Code; 4] {
    let token = token.map(|token| format!("Bearer {token}").parse().unwrap());
    let mut client = FirestoreClient::with_interceptor(
        Channel::from_shared(format!("http://{}", world.double.address())).unwrap().connect_lazy(),
        move |mut request: Request<()>| {
            if let Some(token) = &token {
                request.metadata_mut().insert("authorization", Clone::clone(token));
            }
            Ok(request)
        },
    );
    let database = DATABASE.to_owned();
    let mode = Some(Mode::ReadOnly(ReadOnly::default()));
    let read_only = Some(TransactionOptions { mode });
    let get = GetDocumentRequest { name: name("a"), ..GetDocumentRequest::default() };
    let commit = CommitRequest { database: database.clone(), writes: vec![set("a", 1)], transaction: Vec::new() };
    let begin = |options| BeginTransactionRequest { database: database.clone(), options };
    [
        client.get_document(get).await.map_or_else(|status| status.code(), |_| Code::Ok),
        client.commit(commit).await.map_or_else(|status| status.code(), |_| Code::Ok),
        client.begin_transaction(begin(read_only)).await.map_or_else(|status| status.code(), |_| Code::Ok),
        client.begin_transaction(begin(None)).await.map_or_else(|status| status.code(), |_| Code::Ok),
    ]
}

#[tokio::test]
async fn roles_decide_who_may_do_what() {
    use Code::{NotFound, Ok, PermissionDenied, Unauthenticated};
    let world = closed().await;
    let reader = token(&world, "reader@p.iam").await;
    let denied = PermissionDenied;
    assert_eq!(codes(&world, Some(&reader)).await, [NotFound, denied, Ok, denied]);
    let nobody = token(&world, "nobody@p.iam").await;
    assert_eq!(codes(&world, Some(&nobody)).await, [denied; 4]);
    let writer = token(&world, "writer@p.iam").await;
    assert_eq!(codes(&world, Some(&writer)).await, [NotFound, Ok, Ok, Ok]);
    for wrong in [None, Some("made-up")] {
        assert_eq!(codes(&world, wrong).await, [Unauthenticated; 4]);
    }
}

#[tokio::test]
async fn a_stranger_gets_no_token() {
    let world = closed().await;
    let (status, answer) = ask(&world, "stranger@p.iam").await;
    assert_eq!(status, "HTTP/1.1 401 Unauthorized");
    assert_eq!(answer["error"], "invalid_grant");
}

#[tokio::test]
async fn tokens_expire() {
    let world = closed().await;
    let old = token(&world, "writer@p.iam").await;
    world.control(json!({"command": "expire_tokens"})).await;
    assert_eq!(codes(&world, Some(&old)).await, [Code::Unauthenticated; 4]);
    let new = token(&world, "writer@p.iam").await;
    assert_eq!(codes(&world, Some(&new)).await[1], Code::Ok);
}

#[tokio::test]
async fn an_emulator_lets_everybody_in() {
    let world = start().await;
    for token in [None, Some("owner")] {
        world.control(json!({"command": "delete_document", "path": name("a")})).await;
        assert_eq!(codes(&world, token).await, [Code::NotFound, Code::Ok, Code::Ok, Code::Ok]);
    }
}

#[tokio::test]
async fn a_server_that_speaks_tls_speaks_nothing_else() {
    let certificates = Certificates::generate();
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        directory: directory.path().to_owned(),
        tls: Some((certificates.server_cert(), certificates.server_key())),
        ..Options::default()
    };
    let double = Double::start(options).await.unwrap();
    let authority = Certificate::from_pem(std::fs::read(certificates.ca_file()).unwrap());
    let endpoint = Channel::from_shared(format!("https://{}", double.address())).unwrap();
    let endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority)).unwrap();
    let client = Client(FirestoreClient::new(endpoint.connect().await.unwrap()));
    client.write(vec![set("a", 1)]).await;
    // Faults find the connection through the encryption.
    let fault = json!({"command": "fault", "action": "close_connection", "times": 1});
    double.control(fault).await.unwrap();
    client.commit(&[], vec![set("a", 2)]).await.unwrap_err();

    let plain = Channel::from_shared(format!("http://{}", double.address())).unwrap().connect_lazy();
    Client(FirestoreClient::new(plain)).commit(&[], vec![set("a", 3)]).await.unwrap_err();
}
