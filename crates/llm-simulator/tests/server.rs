//! What the server does with connections, whoever is at their other end.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use llm_simulator::{Endpoint, Reply, Said, Simulator};
use serde_json::Value;

const CREATE: &str = r#"{"requests":[{"custom_id":"a","params":{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"one"}]}}]}"#;

fn connect(simulator: &Simulator) -> TcpStream {
    TcpStream::connect(simulator.url().strip_prefix("http://").unwrap()).unwrap()
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: here\r\nanthropic-version: 2023-06-01\r\n\
         connection: close\r\ncontent-length: {length}\r\n"
    )
}

/// Sends a call and reads its answer: status, headers and body.
fn call(simulator: &Simulator, head: &str, body: &str) -> (String, String) {
    let mut stream = connect(simulator);
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    read(stream)
}

fn read(mut stream: TcpStream) -> (String, String) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return (head.to_owned(), body.to_owned());
            }
        }
        match stream.read(&mut buffer).unwrap() {
            0 => return (text, String::new()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A create that the machine does not get to is not absent from a list that comes after it: without
/// that, two lists, however far apart, prove nothing on a busy machine, and a client that sends
/// once more what they lack pays twice. That failed a test once in a while.
#[test]
fn a_list_waits_for_creates_whose_connections_came_first() {
    let simulator = Simulator::start().unwrap();
    let mut create = connect(&simulator);
    let (sender, listed) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (_, body) = call(&simulator, &head("GET", "/v1/messages/batches", 0), "");
            sender.send(body).unwrap();
        });
        simulator.server().wait_until(|seen| seen.len() == 1);
        // The list has arrived, and the create says nothing yet.
        assert!(listed.try_recv().is_err());
        let head = head("POST", "/v1/messages/batches", CREATE.len());
        create.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        create.write_all(CREATE.as_bytes()).unwrap();
        let body: Value = serde_json::from_str(&listed.recv().unwrap()).unwrap();
        assert_eq!(body["data"][0]["id"], "msgbatch_0");
    });
}

/// A connection that is closed without a word keeps no list waiting.
#[test]
fn a_connection_that_brings_nothing_keeps_nobody_waiting() {
    let simulator = Simulator::start().unwrap();
    drop(connect(&simulator));
    let (status, _) = call(&simulator, &head("GET", "/v1/messages/batches", 0), "");
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
}

#[test]
fn results_can_be_read_in_part_and_only_while_they_are_the_same() {
    let simulator = Simulator::builder().ranges().start().unwrap();
    call(&simulator, &head("POST", "/v1/messages/batches", CREATE.len()), CREATE);
    let path = "/v1/messages/batches/msgbatch_0/results";
    let get = |more: &str| call(&simulator, &(head("GET", path, 0) + more), "");
    let (whole_head, whole) = get("");
    let tag = whole_head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (head, part) = get(&format!("range: bytes=10-\r\nif-range: {tag}\r\n"));
    assert!(
        head.starts_with("HTTP/1.1 206") && head.contains("content-range: bytes 10-"),
        "{head}"
    );
    assert_eq!(part, whole[10..]);
    let (head, all) = get("range: bytes=10-\r\nif-range: \"other\"\r\n");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(all, whole);
    assert!(get("range: bytes=99999999-\r\n").0.starts_with("HTTP/1.1 416"));
}

#[test]
fn an_answer_can_be_cut_anywhere_with_its_headers_whole() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::List => Reply::Cut(5, Box::new(usual)),
            _ => usual,
        })
        .start()
        .unwrap();
    let (text, _) = call(&simulator, &head("GET", "/v1/messages/batches", 0), "");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(body.len(), 5);
}

/// Each request of a batch is run once, however often anybody looks.
#[test]
fn the_model_is_asked_once_for_each_request_and_a_cancelled_batch_keeps_what_was_done() {
    let (sender, asked) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let simulator = Simulator::builder()
        .running(usize::MAX)
        .done_at_cancel(1)
        .model(move |question| {
            sender.lock().unwrap().send(()).unwrap();
            Said::text(question.text.clone())
        })
        .start()
        .unwrap();
    call(&simulator, &head("POST", "/v1/messages/batches", CREATE.len()), CREATE);
    call(&simulator, &head("POST", "/v1/messages/batches/msgbatch_0/cancel", 0), "");
    call(&simulator, &head("GET", "/v1/messages/batches/msgbatch_0", 0), "");
    let results = head("GET", "/v1/messages/batches/msgbatch_0/results", 0);
    for _ in 0..3 {
        let (_, body) = call(&simulator, &results, "");
        assert!(body.contains("succeeded"), "{body}");
    }
    assert_eq!((asked.try_iter().count(), simulator.paid().len()), (1, 1));
}
