//! Truncation, rotation, rewriting and removal under an index that follows the file.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs;

use common::{Scratch, lesson, scratch};
use lessons_index::{Compaction, LessonsIndex};
use proptest::prelude::*;
use proptest::sample::Index;

/// Is something that a program does to a file it shares.
#[derive(Clone, Debug)]
enum Deed {
    Append(u8),
    Truncate(Index),
    /// Near the end of the file: what is farther away is not looked at while it changes.
    Flip(Index),
    Rewrite(u8),
    Replace(u8),
    Remove,
    Nothing,
    Add(u8),
    Compact,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0..9_u8).prop_map(Deed::Append),
        1 => any::<Index>().prop_map(Deed::Truncate),
        2 => any::<Index>().prop_map(Deed::Flip),
        1 => (0..9_u8).prop_map(Deed::Rewrite),
        1 => (0..9_u8).prop_map(Deed::Replace),
        1 => Just(Deed::Remove),
        1 => Just(Deed::Nothing),
        2 => (0..9_u8).prop_map(Deed::Add),
        1 => Just(Deed::Compact),
    ]
}

impl Deed {
    fn run(&self, file: &Scratch, other: &LessonsIndex) {
        let line = |id: &u8| format!("{{\"id\":\"{id}\"}}\n");
        let mut content = fs::read(&file.path).unwrap_or_default();
        match self {
            Self::Append(id) => {
                content.extend(line(id).bytes());
                fs::write(&file.path, content).unwrap();
            }
            Self::Truncate(at) => {
                content.truncate(at.index(content.len() + 1));
                fs::write(&file.path, content).unwrap();
            }
            Self::Flip(at) if !content.is_empty() => {
                let at = at.index(content.len().min(4096));
                let at = content.len() - 1 - at;
                content[at] ^= 1;
                fs::write(&file.path, content).unwrap();
            }
            Self::Rewrite(id) => fs::write(&file.path, line(id)).unwrap(),
            Self::Replace(id) => {
                let fresh = file.dir.path().join("fresh");
                fs::write(&fresh, line(id)).unwrap();
                fs::rename(&fresh, &file.path).unwrap();
            }
            Self::Remove => drop(fs::remove_file(&file.path)),
            Self::Add(id) => drop(other.add(lesson(&id.to_string())).unwrap()),
            Self::Compact => drop(other.compact(&Compaction::default()).unwrap()),
            Self::Flip(_) | Self::Nothing => {}
        }
    }
}

proptest! {
    #![proptest_config(common::cases(200))]

    /// After a refresh the index is what the file is.
    #[test]
    fn refreshing_is_loading_whatever_was_done_to_the_file(
        deeds in prop::collection::vec(deed(), 1..12),
    ) {
        // More than is compared before what is appended is read by itself.
        let long = format!("{{\"id\":\"long\",\"failure_msg\":\"{}\"}}\n", "x".repeat(10_000));
        let file = scratch(
            long + "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\"}\n{\"id\":\"a\",\"n\":2}\n",
        );
        let (index, other) = (file.open(), file.open());
        for deed in &deeds {
            deed.run(&file, &other);
            index.refresh().unwrap();
            let whole = file.open();
            prop_assert_eq!(index.report(), whole.report(), "{:?}", deed);
            prop_assert_eq!(index.snapshot().all(), whole.snapshot().all(), "{:?}", deed);
        }
    }
}

/// A file that was removed leaves its number to the next: the last 4 KiB alone do not tell them
/// apart.
#[test]
fn a_new_file_with_the_number_of_the_old_one_is_read_whole() {
    let line = |id: &str, times: u64| {
        format!(
            "{{\"id\":\"{id}\",\"times_seen\":{times},\"failure_msg\":\"{}\"}}\n",
            "x".repeat(5_000)
        )
    };
    let file = scratch(line("a", 3) + &line("b", 1));
    if fs::metadata(&file.path).unwrap().created().is_err() {
        // Nothing tells them apart here.
        return;
    }
    for times in 4..9 {
        let index = file.open();
        fs::remove_file(&file.path).unwrap();
        fs::write(&file.path, line("a", times) + &line("b", 1) + &line("c", 1)).unwrap();
        index.refresh().unwrap();
        assert_eq!(index.snapshot().get("a").unwrap().times_seen, times);
        fs::write(&file.path, line("a", times) + &line("b", 1)).unwrap();
    }
}
