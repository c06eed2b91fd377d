//! A provider on loopback: message batches that end at once.

use std::sync::{Arc, Mutex};

use llm_simulator::{Endpoint, Reply, Said, Seen, Simulator};
use serde_json::json;

/// How the server answers a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creates {
    /// With a batch.
    Work,
    /// By closing the connection after the create was taken.
    Vanish,
    /// By closing the connection, with nothing taken.
    Lose,
    /// Not at all, while the connection stays open; nothing is taken.
    Hang,
    /// With 401.
    Unauthorized,
    /// With a batch that never ends.
    NeverEnd,
}

/// A running server; it ends with the test.
pub(crate) struct Server {
    pub(crate) url: String,
    simulator: Simulator,
    creates: Arc<Mutex<Creates>>,
}

impl Server {
    pub(crate) fn start(creates: Creates) -> Server {
        let creates = Arc::new(Mutex::new(creates));
        let (before, after) = (Arc::clone(&creates), Arc::clone(&creates));
        let simulator = Simulator::builder()
            .running(if *creates.lock().expect("no panic in the server") == Creates::NeverEnd {
                usize::MAX
            } else {
                0
            })
            .model(|question| {
                let path = question.text.split("path:").nth(1);
                let text = match path.and_then(|rest| rest.split_whitespace().next()) {
                    Some(path) if path.starts_with('-') => {
                        json!({ "files": [{ "path": path[1..], "delete": true }] }).to_string()
                    }
                    // The prompt itself, so that no two are the same.
                    Some(path) if path.starts_with('+') => {
                        let file = json!({ "path": path[1..], "content": question.text });
                        json!({ "files": [file] }).to_string()
                    }
                    Some(path) => {
                        json!({ "files": [{ "path": path, "content": "made\n" }] }).to_string()
                    }
                    None => format!("answer to {}", question.text),
                };
                Said::Text { text, input_tokens: 10, output_tokens: 5 }
            })
            .before(move |call| {
                match (call.endpoint, *before.lock().expect("no panic in the server")) {
                    (Endpoint::Create, Creates::Lose) => Some(Reply::Drop),
                    (Endpoint::Create, Creates::Hang) => Some(Reply::Silence),
                    (Endpoint::Create, Creates::Unauthorized) => {
                        Some(Reply::error(401, "authentication_error", "invalid key"))
                    }
                    _ => None,
                }
            })
            .after(move |call, usual| {
                match (call.endpoint, *after.lock().expect("no panic in the server")) {
                    (Endpoint::Create, Creates::Vanish) => Reply::Drop,
                    _ => usual,
                }
            })
            .start()
            .expect("a port");
        Server { url: simulator.url().to_owned(), simulator, creates }
    }

    /// Changes how the server answers from now on.
    pub(crate) fn set(&self, creates: Creates) {
        *self.creates.lock().expect("no panic in the server") = creates;
        if creates == Creates::Work {
            self.simulator.end_batches();
        }
    }

    /// Returns how many requests with that method came in, without looks at the list.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|seen| is_of(seen, method)).count()
    }

    /// Waits until so many requests with that method came in, all told.
    pub(crate) fn wait_for(&self, method: &str, wanted: usize) {
        let enough = |seen: &[Seen]| seen.iter().filter(|s| is_of(s, method)).count() >= wanted;
        self.simulator.server().wait_until(enough);
    }

    /// The creates that came in.
    pub(crate) fn creates(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == "POST").collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.simulator.server().seen()
    }

    /// The prompts that were run and are paid for.
    pub(crate) fn paid(&self) -> Vec<String> {
        self.simulator.paid()
    }
}

fn is_of(seen: &Seen, method: &str) -> bool {
    seen.method == method && !seen.path.contains('?')
}
