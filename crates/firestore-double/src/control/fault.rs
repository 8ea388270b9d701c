use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::faults::{Action, Fault, Moment, code_from_name};

/// Reads a fault from a command.
pub(super) fn parse(request: &Json) -> Result<Fault, String> {
    let text = |name: &str| request.get(name).and_then(Json::as_str);
    let number = |name: &str| request.get(name).and_then(Json::as_u64);
    let action = match text("action").ok_or("there is no action")? {
        "status" => {
            let name = text("code").ok_or("there is no code")?;
            let code = code_from_name(name).ok_or_else(|| format!("{name:?} is no code"))?;
            Action::Fail(code, text("message").unwrap_or("a test asked for this").to_owned())
        }
        "delay" => Action::Delay(Duration::from_millis(number("ms").ok_or("there are no ms")?)),
        "silence" => Action::Silence,
        "close_connection" => Action::CloseConnection,
        other => return Err(format!("{other:?} is no action")),
    };
    let moment = match text("when").unwrap_or("before") {
        "before" => Moment::Before,
        "after" => Moment::After,
        other => return Err(format!("{other:?} is neither before nor after")),
    };
    let probability = request.get("probability").and_then(Json::as_f64);
    Ok(Fault {
        method: text("method").unwrap_or("*").to_owned(),
        moment,
        action,
        times: number("times"),
        contains: text("contains").map(str::to_owned),
        chance: probability.map(|probability| (probability, Rng::with_seed(number("seed").unwrap_or_default()))),
        hits: 0,
    })
}

/// Shows a fault and how often it has hit.
pub(super) fn show(fault: &Fault) -> Json {
    json!({"method": fault.method, "action": format!("{:?}", fault.action), "times": fault.times, "hits": fault.hits})
}
