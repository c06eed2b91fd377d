//! Requests that cost something, and providers that lose or expire them.

use llm_batch::{Builder, Error, LaneChoice, Prices, Request, Run};
use llm_simulator::{Call, Endpoint, Reply, Simulator};
use serde_json::{Value, json};

use super::{Outcome, Place, ask as plain, builder, run};

/// An answer of ten tokens, the longest there may be, is ten dollars alone and five in a batch.
pub const PRICES: &str =
    r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 0, "output": 1000000}}}"#;

pub fn ask(id: &str) -> Request {
    plain(id).with_max_tokens(10)
}

pub fn open(simulator: &Simulator, place: &Place) -> Builder {
    builder(simulator.url(), &place.state()).prices(Prices::parse(PRICES).unwrap())
}

/// Asks one by one, and asks again where an answer is lost.
pub fn retrying(simulator: &Simulator, place: &Place) -> Builder {
    open(simulator, place).lane(LaneChoice::Sync).sync_retry(true)
}

pub fn go(
    settings: Builder,
    requests: impl IntoIterator<Item = Request>,
) -> (Vec<Outcome>, Result<Run, Error>) {
    run(&settings.build().unwrap(), requests)
}

/// A provider whose answers to `endpoint` are lost.
pub fn losing(endpoint: Endpoint) -> Simulator {
    let lose =
        move |call: &Call<'_>, usual| if call.endpoint == endpoint { Reply::Drop } else { usual };
    Simulator::builder().after(lose).start().unwrap()
}

/// Lets the first batch expire whose results are read.
pub fn expired(call: &Call<'_>, usual: Reply) -> Reply {
    match (call.endpoint, call.nth) {
        (Endpoint::Results, 0) => {
            let text = String::from_utf8_lossy(usual.body()).into_owned();
            let mut line: Value = serde_json::from_str(text.trim()).unwrap();
            line["result"] = json!({"type": "expired"});
            Reply::jsonl(&[line.to_string()])
        }
        _ => usual,
    }
}

/// A provider that lets its first batch expire, once it is told to end its batches.
pub fn expiring() -> Simulator {
    Simulator::builder().running(usize::MAX).after(expired).start().unwrap()
}
