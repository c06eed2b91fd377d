//! What the provider knows.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::model::{Question, Said};
use crate::simulator::{Settings, Taken};

#[derive(Debug, Default)]
pub(crate) struct World {
    /// All batches, the oldest first.
    pub(crate) batches: Vec<Batch>,
    /// Files by id: name, purpose and content.
    pub(crate) files: HashMap<String, File>,
    /// The texts of requests that were asked alone.
    pub(crate) asked: Vec<String>,
    next: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) purpose: String,
    pub(crate) content: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: String,
    pub(crate) number: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) stage: Stage,
    /// How many polls it still runs.
    pub(crate) polls: usize,
    /// How many lists do not show it yet.
    pub(crate) hidden: usize,
    pub(crate) is_foreign: bool,
    /// The file that it was made of, and what was said of it (OpenAI).
    pub(crate) input: Option<Input>,
    /// What the model said, once it was asked: each request is run once.
    said: OnceCell<Vec<Said>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) file: String,
    pub(crate) endpoint: String,
    pub(crate) metadata: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    Canceling,
    Ended,
    /// Ended because somebody said so: what had not run by then never will.
    Canceled,
    /// Nothing of it ran: code, message and line of each fault.
    Failed(Vec<(String, String, Option<usize>)>),
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) custom_id: String,
    pub(crate) question: Question,
    /// What is wrong with it, found when it is run.
    pub(crate) fault: Option<String>,
    /// The part that is to be kept in the cache.
    pub(crate) cached: Option<Cached>,
}

/// A marked part: its tokens, and a number that is the same for the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) digest: u64,
    pub(crate) tokens: u64,
}

impl World {
    /// Returns a number that comes once.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn add(
        &mut self,
        prefix: &str,
        items: Vec<Item>,
        input: Option<Input>,
        settings: &Settings,
    ) -> &mut Batch {
        let number = self.number();
        let (polls, hidden) = (settings.running, settings.list_lag);
        self.batches.push(Batch {
            id: format!("{prefix}_{number}"),
            number,
            items,
            stage: Stage::Running,
            polls,
            hidden,
            is_foreign: false,
            input,
            said: OnceCell::new(),
        });
        self.batches.last_mut().expect("one was just added")
    }

    pub(crate) fn plant(&mut self, requests: usize, settings: &Settings) {
        let item = |n: usize| Item {
            custom_id: format!("foreign-{n}"),
            question: Question { model: "foreign".to_owned(), text: format!("foreign {n}") },
            fault: None,
            cached: None,
        };
        let items = (0..requests).map(item).collect();
        let batch = self.add("msgbatch", items, None, settings);
        (batch.is_foreign, batch.hidden) = (true, 0);
    }

    pub(crate) fn batch(&mut self, id: &str) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|batch| batch.id == id)
    }

    /// Returns a page of batches, the newest first, and whether there are more.
    pub(crate) fn page(&mut self, limit: usize, after: Option<&str>) -> (Vec<&Batch>, bool) {
        for batch in &mut self.batches {
            if batch.hidden == 0 {
                batch.advance();
            }
            batch.hidden = batch.hidden.saturating_sub(1);
        }
        let newest_first = self.batches.iter().rev();
        let mut rest = newest_first.skip_while(|batch| after.is_some_and(|id| batch.id != id));
        if after.is_some() {
            rest.next();
        }
        let mut page: Vec<&Batch> =
            rest.filter(|batch| batch.hidden == 0).take(limit.saturating_add(1)).collect();
        let has_more = page.len() > limit;
        page.truncate(limit);
        (page, has_more)
    }
}

impl Batch {
    /// Goes on by one poll.
    pub(crate) fn advance(&mut self) {
        match self.stage {
            Stage::Running if self.polls == 0 => self.stage = Stage::Ended,
            Stage::Canceling => self.stage = Stage::Canceled,
            _ => self.polls = self.polls.saturating_sub(usize::from(self.polls != usize::MAX)),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.stage, Stage::Running | Stage::Canceling)
    }

    /// Returns what became of each request of a batch that is over.
    pub(crate) fn said(&self, settings: &Settings) -> &[Said] {
        self.said.get_or_init(|| {
            let run = |(at, item): (usize, &Item)| match &item.fault {
                _ if self.stage == Stage::Canceled && at >= settings.done_at_cancel => {
                    Said::Canceled
                }
                Some(message) => {
                    let kind = "invalid_request_error".to_owned();
                    Said::Error { kind, message: message.clone() }
                }
                None => (settings.model.0)(&item.question),
            };
            self.items.iter().enumerate().map(run).collect()
        })
    }

    pub(crate) fn taken(&self) -> Taken {
        Taken {
            id: self.id.clone(),
            custom_ids: self.items.iter().map(|item| item.custom_id.clone()).collect(),
            texts: self.items.iter().map(|item| item.question.text.clone()).collect(),
        }
    }

    pub(crate) fn paid(&self, settings: &Settings) -> Vec<String> {
        if matches!(self.stage, Stage::Failed(_)) {
            return Vec::new();
        }
        if !self.is_over() {
            // All of it will be run, as far as anybody knows.
            return self.items.iter().map(|item| item.question.text.clone()).collect();
        }
        let said = self.items.iter().zip(self.said(settings));
        let paid = said.filter(|(_, said)| matches!(said, Said::Text { .. }));
        paid.map(|(item, _)| item.question.text.clone()).collect()
    }
}

/// Returns a moment that is later for a greater number, as JSON writes it.
pub(crate) fn moment(number: u64) -> String {
    let (hours, minutes, seconds) = (number / 3600, number / 60 % 60, number % 60);
    let (days, hours) = (hours / 24, hours % 24);
    format!("2026-01-{:02}T{hours:02}:{minutes:02}:{seconds:02}Z", 1 + days % 28)
}
