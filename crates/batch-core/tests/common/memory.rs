//! A journal in memory that fails, panics and waits when it is told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use batch_core::{ItemId, Journal, JournalError, JournalErrorKind};

use super::Gate;

/// How a call of the journal goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    Fails,
    Panics,
}

impl Mood {
    fn answer(self, call: &str) -> Result<(), JournalError> {
        match self {
            Self::Well => Ok(()),
            Self::Fails => Err(JournalError::new(JournalErrorKind::Full, format!("no {call}"))),
            Self::Panics => panic!("the test wants no {call}"),
        }
    }
}

/// A call that can be made to fail, and to wait.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) mood: Mutex<Mood>,
    /// Is waited at by a call with the item, once it is set.
    pub(crate) held: Mutex<Option<(u64, Gate)>>,
    /// Opens with the first call that waits.
    pub(crate) waits: Gate,
    pub(crate) threads: Mutex<Vec<ThreadId>>,
}

impl Call {
    /// Makes the call that has this item wait, until the gate is opened.
    pub(crate) fn hold(&self, item: u64) -> Gate {
        let gate = Gate::default();
        *self.held.lock().unwrap() = Some((item, gate.clone()));
        gate
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn make(&self, call: &str, items: &[u64]) -> Result<(), JournalError> {
        self.threads.lock().unwrap().push(thread::current().id());
        let held = self.held.lock().unwrap().clone();
        if let Some((_, gate)) = held.filter(|(item, _)| items.contains(item)) {
            self.waits.open();
            gate.pass();
        }
        let mood = *self.mood.lock().unwrap();
        mood.answer(call)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    epoch: u64,
    next: Mutex<u64>,
    stored: Mutex<BTreeMap<ItemId, u64>>,
    pub(crate) append: Call,
    pub(crate) ack: Call,
    pub(crate) read: Call,
    groups: Mutex<Vec<Vec<u64>>>,
    acked: Mutex<Vec<u64>>,
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The journal as the next run of the program finds it.
    pub(crate) fn reopened(&self) -> Arc<Self> {
        let stored = Mutex::new(self.stored.lock().unwrap().clone());
        Arc::new(Self { epoch: self.epoch + 1, stored, ..Self::default() })
    }

    /// The items that are stored and not acknowledged, in order of their ids.
    pub(crate) fn left(&self) -> Vec<u64> {
        self.stored.lock().unwrap().values().copied().collect()
    }

    /// The groups that were stored.
    pub(crate) fn groups(&self) -> Vec<Vec<u64>> {
        self.groups.lock().unwrap().clone()
    }

    /// The items that were acknowledged, one by one; an id that is not stored fails the test.
    pub(crate) fn acked(&self) -> Vec<u64> {
        self.acked.lock().unwrap().clone()
    }
}

impl Journal<u64> for Memory {
    fn reserve(&self, count: u64) -> ItemId {
        let mut next = self.next.lock().unwrap();
        let first = ItemId { epoch: self.epoch, seq: *next };
        *next += count;
        first
    }

    fn append(&self, items: &[(ItemId, &u64)]) -> Result<(), JournalError> {
        let group: Vec<_> = items.iter().map(|(_, item)| **item).collect();
        self.append.make("append", &group)?;
        self.groups.lock().unwrap().push(group);
        self.stored.lock().unwrap().extend(items.iter().map(|(id, item)| (*id, **item)));
        Ok(())
    }

    fn ack(&self, ids: &[ItemId]) -> Result<(), JournalError> {
        let named = |id| *self.stored.lock().unwrap().get(id).expect("an item is acked once");
        let items: Vec<_> = ids.iter().map(named).collect();
        self.ack.make("ack", &items)?;
        self.stored.lock().unwrap().retain(|id, _| !ids.contains(id));
        self.acked.lock().unwrap().extend(items);
        Ok(())
    }

    fn unacked(&self, before: ItemId) -> Result<Vec<(ItemId, u64)>, JournalError> {
        self.read.make("read", &[])?;
        let stored = self.stored.lock().unwrap();
        Ok(stored.range(..before).map(|(id, item)| (*id, *item)).collect())
    }
}
