//! How a pass hears of what happens elsewhere.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::desk::Desk;
use crate::direct::Reply;

/// What happens elsewhere.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody says stop.
    Stopped,
    /// It is the turn of this pass to ask that model.
    Room(Arc<str>),
    /// A request that was asked alone has come back.
    Answered(Box<Reply>),
}

/// Where a pass gets its mail.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    sender: Sender<Event>,
    /// The desk that keeps the pass while it waits, and its number there.
    bell: Option<(Arc<Desk>, u64)>,
}

impl Mail {
    /// Returns that of a pass whose thread waits for it.
    pub(crate) fn open() -> (Mail, Receiver<Event>) {
        let (sender, events) = mpsc::channel();
        (Mail { sender, bell: None }, events)
    }

    /// Returns that of a pass which is kept at `desk`.
    pub(crate) fn at(desk: &Arc<Desk>, number: u64) -> (Mail, Receiver<Event>) {
        let (mail, events) = Mail::open();
        (Mail { bell: Some((Arc::clone(desk), number)), ..mail }, events)
    }

    /// Brings it to the pass. Where that has ended it is dropped.
    pub(crate) fn post(&self, event: Event) {
        drop(self.sender.send(event));
        if let Some((desk, number)) = &self.bell {
            desk.ring(*number);
        }
    }
}
