//! Serves until stdin ends, then prints what was paid and what was seen, as JSON lines.
//!
//! `serve lose` takes every create and loses its answer.

use std::io::{self, Read, Write};

use llm_simulator::{Endpoint, Reply, Simulator};
use serde_json::json;

fn main() -> io::Result<()> {
    let loses = std::env::args().any(|argument| argument == "lose");
    let simulator = Simulator::builder()
        .running(1)
        .after(move |call, usual| match call.endpoint {
            Endpoint::Create if loses => Reply::Drop,
            _ => usual,
        })
        .start()?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", simulator.url())?;
    out.flush()?;
    io::stdin().read_to_string(&mut String::new())?;
    writeln!(out, "{}", json!({"paid": simulator.paid(), "batches": simulator.batches().len()}))?;
    for seen in simulator.server().seen() {
        let body = String::from_utf8_lossy(&seen.body);
        let line = json!({"method": seen.method, "path": seen.path, "headers": seen.headers,
                          "body": body});
        writeln!(out, "{line}")?;
    }
    Ok(())
}
