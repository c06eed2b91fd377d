//! Our engine passes every test that it has an API for, with both drivers.
//!
//! Each test is a process of its own, which the program ends when it hangs.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has to stop")]

use std::process::Command;

/// Runs one row and returns the verdict and what was seen.
fn verdict(row: &str, engine: &str) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_conformance")).args([row, engine]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let (word, seen) = text.trim_end_matches('\n').split_once('\t').expect(&errors);
    (word.to_owned(), seen.to_owned())
}

fn passes(row: &str, engine: &str) {
    let (word, seen) = verdict(row, engine);
    assert_eq!(word, "pass", "{row} of {engine}: {seen}");
}

macro_rules! passes {
    ($($test:ident: $row:literal),* $(,)?) => {
        mod threads {
            $(#[test] fn $test() { super::passes($row, "ours (threads)"); })*
        }
        mod tasks {
            $(#[test] fn $test() { super::passes($row, "ours (tasks)"); })*
        }
        mod inline {
            $(#[test] fn $test() { super::passes($row, "ours (inline)"); })*
        }
    };
}

passes! {
    t2_a_panic_is_an_error_and_the_engine_lives_on: "T2",
    t4_what_is_pending_is_done_after_the_last_handle: "T4",
    t6_single_calls_keep_the_cap: "T6",
    t6b_a_bulk_call_keeps_the_cap: "T6b",
    t7_a_missing_last_result_reaches_nobody: "T7",
    t7b_a_missing_result_moves_no_other: "T7b",
    t9_a_second_runtime_works: "T9",
    t10_a_processor_that_submits_to_itself_ends: "T10",
    t11_a_poison_item_fails_alone: "T11",
    t12_many_keys_run_in_bounded_number: "T12",
    t13_callers_wait_for_room: "T13",
    l1_memory_does_not_grow: "L1",
}

/// The inline driver sends at once.
#[test]
fn t1_a_trickle_does_not_put_off_the_linger() {
    passes("T1", "ours (threads)");
    passes("T1", "ours (tasks)");
}

#[test]
fn t3_a_cancelled_item_is_not_executed() {
    passes("T3", "ours (threads)");
    passes("T3", "ours (tasks)");
}

#[test]
fn t5_an_item_after_a_full_batch_gets_its_own_linger() {
    passes("T5", "ours (threads)");
    passes("T5", "ours (tasks)");
}

#[test]
fn an_unknown_row_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_conformance")).args(["T0", "x"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}
