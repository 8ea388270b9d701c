//! Runs one stand-in for Firestore until it is killed.

use std::process::ExitCode;

use firestore_double::{Double, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => Double::start(options).await.map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match result {
        Ok(double) => double.ended().await,
        Err(error) => eprintln!("firestore-double: {error}"),
    }
    ExitCode::FAILURE
}
