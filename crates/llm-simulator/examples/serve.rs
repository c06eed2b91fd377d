//! Serves until stdin ends, then prints what was paid and what was seen, as JSON lines.
//!
//! `serve lose` takes every create and loses its answer; `serve large` takes creates of any size and
//! keeps no bodies.

use std::io::{self, Read, Write};

use llm_simulator::{Endpoint, Reply, Simulator};
use serde_json::json;

fn main() -> io::Result<()> {
    let is = |mode: &str| std::env::args().any(|argument| argument == mode);
    let (loses, is_large) = (is("lose"), is("large"));
    let builder = Simulator::builder().running(usize::from(!is_large));
    let builder = if is_large { builder.limits(usize::MAX, usize::MAX) } else { builder };
    let simulator = builder
        .after(move |call, usual| match call.endpoint {
            Endpoint::Create if loses => Reply::Drop,
            _ => usual,
        })
        .start()?;
    if is_large {
        simulator.server().forget_bodies();
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", simulator.url())?;
    out.flush()?;
    io::stdin().read_to_string(&mut String::new())?;
    let paid = if is_large { Vec::new() } else { simulator.paid() };
    writeln!(out, "{}", json!({"paid": paid, "batches": simulator.batches().len()}))?;
    for seen in simulator.server().seen() {
        let body = String::from_utf8_lossy(&seen.body);
        let line = json!({"method": seen.method, "path": seen.path, "headers": seen.headers,
                          "body": body});
        writeln!(out, "{line}")?;
    }
    Ok(())
}
