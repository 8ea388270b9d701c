use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{Answer, LONGEST_ANSWER, Request, Shown, VARIABLE};
use crate::exit::{self, Failure};
use crate::options::Common;
use crate::store;

/// The longest to wait for the answer. The store has less time than that for its own.
const ANSWERING: Duration = Duration::from_secs(30);

/// Asks the `leasehold` whose command we are. None if there is none, or if the request is about
/// another lock or another store than its own: then the store has to be asked.
///
/// # Errors
///
/// It could not do what it was asked for.
pub(crate) async fn ask(common: &Common, request: &Request) -> Result<Option<Answer>, Failure> {
    let variables = (std::env::var_os(VARIABLE), std::env::var(store::VARIABLE));
    let ((Some(socket), Ok(store)), None) = (variables, &common.store) else { return Ok(None) };
    // Somebody without access to the socket may have access to the store.
    let Ok(stream) = UnixStream::connect(socket).await else { return Ok(None) };
    let line = format!("{}\n", request.encode(&store));
    match tokio::time::timeout(ANSWERING, exchange(stream, &line)).await {
        Ok(Ok(answer)) => decode(&answer),
        Ok(Err(_)) | Err(_) => {
            Err(Failure::new(exit::UNAVAILABLE, "the leasehold that runs this command does not answer"))
        }
    }
}

async fn exchange(stream: UnixStream, line: &str) -> io::Result<Value> {
    let (read, mut write) = stream.into_split();
    write.write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    BufReader::new(read.take(LONGEST_ANSWER)).read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

fn decode(answer: &Value) -> Result<Option<Answer>, Failure> {
    if let Some(code) = answer["exit_code"].as_u64() {
        let code = u8::try_from(code).unwrap_or(exit::UNAVAILABLE);
        let failure = Failure::new(code, answer["message"].as_str().unwrap_or_default());
        return Err(Failure { hint: answer["hint"].as_str().map(str::to_owned), ..failure });
    }
    if let Some(done) = answer["done"].as_bool() {
        return Ok(Some(Answer::Done(done)));
    }
    let is_held = answer["held"] != false;
    let Some(text) = answer["text"].as_str() else {
        return Ok((!is_held).then_some(Answer::NotHeld));
    };
    Ok(Some(Answer::Shown(Shown { text: text.to_owned(), object: answer["object"].clone(), is_held })))
}
