use std::collections::BTreeSet;
use std::time::Duration;

use googleapis_tonic_google_firestore_v1::google::firestore::v1::write::Operation;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{Document, Write};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use super::fault;
use crate::clock::timestamp;
use crate::data::json::{document_to_json, fields_from_json};
use crate::data::write::validate;
use crate::faults::code_from_name;
use crate::name::Database;
use crate::server::Server;
use crate::state::Mode;

/// Does what the command says.
pub(crate) async fn run(server: &Server, request: &Json) -> Result<Json, String> {
    let text = |name: &str| request.get(name).and_then(Json::as_str);
    match text("command").ok_or("there is no command")? {
        "set_document" => set_document(server, request).await,
        "delete_document" => commit(server, Operation::Delete(path(request)?)).await,
        "documents" => Ok(documents(server, text("prefix").unwrap_or_default())),
        "counts" => Ok(counts(server, request)),
        "calls" => Ok(json!(server.engine.state().counts.calls)),
        "fault" => {
            server.faults.list().push(fault::parse(request)?);
            Ok(Json::Null)
        }
        "faults" => Ok(server.faults.list().iter().map(fault::show).collect()),
        "clear_faults" => {
            server.faults.list().clear();
            Ok(Json::Null)
        }
        "clock" => {
            let offset = request.get("offset_ms").and_then(Json::as_i64).ok_or("there is no offset_ms")?;
            server.engine.state().clock.set_offset(offset.saturating_mul(1000));
            Ok(now(server))
        }
        "now" => Ok(now(server)),
        "mode" => set_mode(server, text("mode").unwrap_or_default()),
        "limits" => Ok(set_limits(server, request)),
        "indexes" => {
            let composite = request.get("composite").and_then(Json::as_bool).ok_or("there is no composite")?;
            server.engine.state().composite_indexes = composite;
            Ok(Json::Null)
        }
        "exempt" => {
            let fields = request.get("fields").and_then(Json::as_array).ok_or("there are no fields")?;
            let fields = fields.iter().filter_map(Json::as_str).map(str::to_owned);
            server.engine.state().exempted = fields.collect();
            Ok(Json::Null)
        }
        "databases" => Ok(set_databases(server, request)),
        "expire_tokens" => {
            server.access.expire_all();
            Ok(Json::Null)
        }
        "close_streams" => close_streams(server, text("code").unwrap_or("UNAVAILABLE")),
        "mute_streams" => {
            server.listeners.mute(request.get("muted").and_then(Json::as_bool).unwrap_or(true));
            Ok(Json::Null)
        }
        "close_connections" => {
            let fraction = request.get("fraction").and_then(Json::as_f64).unwrap_or(1.0);
            Ok(json!({"closed": server.connections.close_some(fraction)}))
        }
        "listening" => Ok(listening(server)),
        "connections" => Ok(json!({"open": server.connections.count()})),
        "transactions" => {
            let transactions = &mut server.engine.state().transactions;
            Ok(json!({"open": transactions.count(), "reading": transactions.count_reading()}))
        }
        other => Err(format!("{other:?} is no command")),
    }
}

fn path(request: &Json) -> Result<String, String> {
    request.get("path").and_then(Json::as_str).map(str::to_owned).ok_or_else(|| "there is no path".to_owned())
}

async fn set_document(server: &Server, request: &Json) -> Result<Json, String> {
    let fields = fields_from_json(request.get("fields").ok_or("there are no fields")?)?;
    commit(server, Operation::Update(Document { name: path(request)?, fields, ..Document::default() })).await
}

/// Writes as a client would, so that it waits for transactions and listeners hear of it.
async fn commit(server: &Server, operation: Operation) -> Result<Json, String> {
    let name = match &operation {
        Operation::Update(document) => &document.name,
        Operation::Delete(name) => name,
        Operation::Transform(_) => return Err("a transform is no command".to_owned()),
    };
    let explain = |status: Status| status.to_string();
    let database = Database::of(name).map_err(explain)?;
    let writes = [Write { operation: Some(operation), ..Write::default() }];
    validate(&database, &writes).map_err(explain)?;
    let response = server.engine.commit(&[], &writes, false).await.map_err(explain)?;
    Ok(json!({"commitTime": response.commit_time.map(|time| time.to_string())}))
}

fn documents(server: &Server, prefix: &str) -> Json {
    let state = server.engine.state();
    let documents = state.documents.current().iter().filter(|(name, _)| name.starts_with(prefix));
    Json::Object(documents.map(|(name, document)| (name.clone(), document_to_json(document))).collect::<Map<_, _>>())
}

fn counts(server: &Server, request: &Json) -> Json {
    let mut state = server.engine.state();
    let counts = state.counts.to_json();
    if request.get("reset").and_then(Json::as_bool) == Some(true) {
        state.counts = Default::default();
    }
    counts
}

fn now(server: &Server) -> Json {
    let now = server.engine.state().clock.now();
    json!({"now": timestamp(now).to_string(), "micros": now})
}

fn set_mode(server: &Server, mode: &str) -> Result<Json, String> {
    server.engine.state().mode = match mode {
        "pessimistic" => Mode::Pessimistic,
        "optimistic" => Mode::Optimistic,
        "careless" => Mode::Careless,
        other => return Err(format!("{other:?} is neither pessimistic nor optimistic nor careless")),
    };
    server.engine.wake();
    Ok(Json::Null)
}

fn set_limits(server: &Server, request: &Json) -> Json {
    let duration = |name: &str| request.get(name).and_then(Json::as_u64).map(Duration::from_millis);
    let mut state = server.engine.state();
    let limits = &mut state.transactions.limits;
    limits.lock_wait = duration("lock_wait_ms").unwrap_or(limits.lock_wait);
    limits.idle = duration("idle_ms").unwrap_or(limits.idle);
    limits.total = duration("total_ms").unwrap_or(limits.total);
    drop(state);
    server.engine.wake();
    Json::Null
}

/// Adds and removes ids, and says which there are then.
fn set_databases(server: &Server, request: &Json) -> Json {
    let names = |field: &str| -> BTreeSet<String> {
        let list = request.get(field).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let mut ids = server.databases.ids();
    ids.extend(names("add"));
    for id in names("remove") {
        ids.remove(&id);
    }
    json!({"ids": *ids})
}

fn close_streams(server: &Server, code: &str) -> Result<Json, String> {
    let code = code_from_name(code).ok_or_else(|| format!("{code:?} is no code"))?;
    let closed = server.listeners.close_all(Status::new(code, "The stream is closed."));
    Ok(json!({"closed": closed}))
}

fn listening(server: &Server) -> Json {
    let streams = server.listeners.interests();
    let documents: BTreeSet<_> = streams.iter().flat_map(|stream| &stream.documents).collect();
    let collections: BTreeSet<_> = streams.iter().flat_map(|stream| &stream.collections).collect();
    json!({"streams": server.listeners.count(), "documents": documents, "collections": collections})
}
