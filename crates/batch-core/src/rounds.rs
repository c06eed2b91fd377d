//! How the results of a batch become final, round by round.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::accumulator::{Again, Buffers, Entry, Packed, Span, Time};
use crate::current;
use crate::error::{BatchError, Outcome};
use crate::id::{BatchId, ItemId};
use crate::items::Items;
use crate::panics;
use crate::processor::Disposition;
use crate::receipts::Receipts;
use crate::seat::{Seat, Verdict};
use crate::slot::Round;
use crate::sync::{Arc, Mutex, Weak, lock};

/// The place of an item in the queue and in its batch.
pub(crate) type EntryOf<O, E> = Entry<Seat<O, E>>;
/// Items that are to be tried again, with their entries.
pub(crate) type Returned<I, O, E> = Vec<(I, EntryOf<O, E>, Again)>;

/// The error of the attempt before, or the verdict that comes back and whether it came too late.
type Judged<O, E> = Result<Option<Arc<E>>, (Verdict<O, E>, bool)>;

/// What a batch tells its engine.
pub(crate) trait Ledger<I, O, E>: Send + Sync {
    /// Asks the processor what is to become of an error.
    fn classify(&self, error: &E) -> Disposition;
    /// Closes the batcher because of an error.
    fn halt(&self, item: ItemId, error: &Arc<E>);
    /// Says whether a journal has to be told of what is final.
    fn has_journal(&self) -> bool;
    /// Says whether somebody wants to hear of each item.
    fn is_observed(&self) -> bool;
    /// Counts all items of a batch as completed, before anybody learns of it. They are told if
    /// somebody wants to hear of each.
    fn complete(&self, batch: BatchId, known: Option<&Packed<Seat<O, E>>>);
    /// Counts resolved items as final, before anybody learns of them.
    fn settle(&self, batch: BatchId, round: &[EntryOf<O, E>]);
    /// Notes that so many settled items of a batch that goes on have their results.
    fn delivered(&self, batch: BatchId, items: usize);
    /// Counts a result that came after its item had timed out.
    fn late(&self);
    /// Notes when the next of the open items times out.
    fn rearm(&self, batch: BatchId, deadline: Time);
    /// Lets the next batch of the key go, and queues what is to be tried again; what may not is
    /// ended here. Says whether [`go_on`](Self::go_on) is to be called once all waiters are woken.
    fn finish(&self, batch: BatchId, again: Returned<I, O, E>) -> bool;
    /// Sees to it that an engine without threads runs what is ready.
    fn go_on(&self);
    /// Hands out an item whose time was over while the processor held it.
    fn drop_timed_out(&self, id: ItemId, item: I);
    /// Takes empty buffers back.
    fn recycle(&self, buffers: BuffersOf<I, O, E>);
}

/// The part of a batch that outlives a panicking processor, to be resolved with its message.
pub(crate) struct Shared<I, O, E> {
    id: BatchId,
    engine: usize,
    ledger: Weak<dyn Ledger<I, O, E>>,
    /// Tells the journal, also when the engine is gone.
    receipts: Option<Arc<Receipts>>,
    tags: Rows,
    /// All items were completed in one step.
    is_complete: AtomicBool,
    /// Its panicking processor dropped it.
    is_abandoned: AtomicBool,
    /// It went through alone until somebody looked.
    is_listed: AtomicBool,
    slots: Mutex<Slots<I, O, E>>,
}

/// What a processor can ask of an item at any time.
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    pub(crate) id: ItemId,
    pub(crate) attempt: u32,
}

/// Empty buffers of a batch that is over.
pub(crate) type BuffersOf<I, O, E> = Buffers<I, Seat<O, E>>;

/// The tags of all items, in the order of the rows; mostly there is one.
struct Rows {
    first: Option<Tags>,
    more: Vec<Tags>,
}

/// The tags of items in a row.
struct Tags {
    /// The place of the first in the batch.
    place: usize,
    first: Tag,
}

struct Slots<I, O, E> {
    /// Away, and none left, once all items were completed in one step.
    known: Packed<Seat<O, E>>,
    /// Seats without a result.
    open: usize,
    /// Seats with a result that no thread has taken to deliver it.
    resolved: usize,
    /// Seats that are to be tried again.
    again: usize,
    /// Results that a thread has taken and not delivered yet.
    delivering: usize,
    /// The items that left the batch to be tried again.
    returned: Vec<ItemId>,
    /// The engine was told that this batch is over.
    finished: bool,
    /// What is to be tried again of a batch that ended while a thread delivers other results.
    put_back: Option<Returned<I, O, E>>,
    /// The items of a batch that its panicking processor dropped; they wait for the message.
    abandoned: Option<Vec<I>>,
}

impl<I, O, E> Shared<I, O, E> {
    pub(crate) fn new(
        id: BatchId,
        known: Packed<Seat<O, E>>,
        ledger: Weak<dyn Ledger<I, O, E>>,
        receipts: Option<Arc<Receipts>>,
        engine: usize,
    ) -> Self {
        let mut open = 0;
        let mut tags_of = |span: Span| {
            let place = open;
            open += span.len;
            Tags { place, first: Tag { id: span.first, attempt: span.attempt } }
        };
        let tags = if let Some(span) = known.span() {
            Rows { first: Some(tags_of(span)), more: Vec::new() }
        } else {
            let mut tags = known.spans().map(tags_of);
            Rows { first: tags.next(), more: tags.collect() }
        };
        let slots = Slots {
            open,
            known,
            resolved: 0,
            again: 0,
            delivering: 0,
            returned: Vec::new(),
            finished: false,
            put_back: None,
            abandoned: None,
        };
        let [is_complete, is_abandoned, is_listed] = [const { AtomicBool::new(false) }; 3];
        Self {
            id,
            engine,
            ledger,
            receipts,
            tags,
            is_complete,
            is_abandoned,
            is_listed,
            slots: Mutex::new(slots),
        }
    }

    pub(crate) fn id(&self) -> BatchId {
        self.id
    }

    pub(crate) fn engine(&self) -> usize {
        self.engine
    }

    /// Returns the number of items without a result.
    pub(crate) fn open(&self) -> usize {
        lock(&self.slots).open
    }

    /// Returns what is known of the item at a place.
    ///
    /// Costs a search among the rows of the batch.
    pub(crate) fn tag(&self, index: usize) -> Tag {
        let Rows { first, more } = &self.tags;
        let later = more.partition_point(|tags| tags.place <= index);
        let tags = later.checked_sub(1).map_or(first.as_ref(), |last| more.get(last));
        let Tags { place, first } = tags.expect("a batch has items");
        Tag { id: first.id.plus((index - place) as u64), ..*first }
    }

    /// Returns the ids of the items whose result was not delivered by this batch.
    pub(crate) fn undelivered_ids(&self) -> Vec<ItemId> {
        let mut slots = lock(&self.slots);
        let undelivered = slots.known.spread().iter().filter(|entry| !entry.slot.is_over());
        let mut ids: Vec<_> = undelivered.map(|entry| entry.id).collect();
        ids.extend(&slots.returned);
        ids
    }

    /// Turns a result into what is to become of its item; asks the processor about an error.
    pub(crate) fn verdict(&self, index: usize, result: Result<O, E>) -> Verdict<O, E> {
        match result {
            Ok(output) => Verdict::Final(Ok(output)),
            Err(error) => {
                let error = Arc::new(error);
                match self.classify(index, &error) {
                    Some(again) => Verdict::Again(error, again),
                    None => Verdict::Final(Err(BatchError::Failed(error))),
                }
            }
        }
    }

    /// Asks the processor about the error of an item; `None` is the end of it.
    pub(crate) fn classify(&self, index: usize, error: &Arc<E>) -> Option<Again> {
        let ledger = self.ledger.upgrade()?;
        match ledger.classify(error) {
            Disposition::Retry { after } => Some(Again::retry(after)),
            Disposition::Split => Some(Again::Split),
            Disposition::Fatal => {
                ledger.halt(self.tag(index).id, error);
                None
            }
            Disposition::Fail => None,
        }
    }

    /// Returns the first seat without a result, or the last seat of all.
    pub(crate) fn first_open(&self) -> usize {
        let mut slots = lock(&self.slots);
        let entries = slots.known.spread();
        let open = entries.iter().position(|entry| entry.slot.is_open());
        open.unwrap_or(entries.len().saturating_sub(1))
    }

    /// Judges every open seat, and delivers if none is left.
    pub(crate) fn judge_open(&self, mut verdict: impl FnMut() -> Verdict<O, E>) {
        let len = {
            let slots = lock(&self.slots);
            if slots.open == 0 {
                return;
            }
            slots.known.len()
        };
        self.judge((0..len).map(|index| (index, verdict())));
    }

    /// Completes every seat in one step, as most batches end; gives the results back if that
    /// cannot be done: a seat is not open, or a journal has to be told first.
    pub(crate) fn complete(&self, outputs: Vec<Result<O, E>>) -> Result<(), Vec<Result<O, E>>> {
        let mut ledger = None;
        // While the seats are away nobody else can resolve anything.
        let (row, mut known) = {
            let mut slots = lock(&self.slots);
            if slots.open == 0 || slots.open < slots.known.len() {
                return Err(outputs);
            }
            // What goes through alone is counted by the thread that runs it, when the call is over,
            // or by who looks first: nobody else has its ticket, or listens.
            let is_listed = self.is_listed.load(Ordering::Acquire);
            if is_listed || !current::complete_pass(self.engine, self.id) {
                ledger = self.ledger.upgrade();
                if ledger.as_ref().is_none_or(|ledger| ledger.has_journal()) {
                    drop(slots);
                    return Err(outputs);
                }
            }
            slots.open = 0;
            slots.finished = true;
            // Mostly they stand in one row, and the buffers can stay where they are.
            let is_observed = ledger.as_ref().is_some_and(|ledger| ledger.is_observed());
            let row = if is_observed { None } else { slots.known.take_row() };
            let others = row.is_none().then(|| mem::take(&mut slots.known));
            (row, others)
        };
        if let Some(ledger) = &ledger {
            ledger.complete(self.id, known.as_ref());
        }
        // Not before: to who takes in what passes it means that nobody has counted it.
        self.is_complete.store(true, Ordering::Release);
        let mut round = Round::new();
        let mut outputs = outputs.into_iter().map(|output| output.ok().map(Ok));
        let mut next = || outputs.next().flatten();
        if let Some(row) = row {
            row.fill(&mut round, &mut next);
        }
        if let Some(known) = &mut known {
            let (entries, rows) = known.take_all();
            for entry in entries {
                if let (Some(filler), Some(output)) = (entry.slot.into_filler(), next()) {
                    round.fill(filler, output);
                }
            }
            rows.for_each(|row| row.fill(&mut round, &mut next));
        }
        if let Some(known) = known {
            lock(&self.slots).known = known;
        }
        let goes_on = ledger.as_ref().is_some_and(|ledger| ledger.finish(self.id, Vec::new()));
        round.finish();
        if let Some(ledger) = ledger.filter(|_| goes_on) {
            ledger.go_on();
        }
        Ok(())
    }

    /// Judges those of the seats that are open, and delivers if none is left; returns how many
    /// there were.
    pub(crate) fn judge(&self, verdicts: impl Iterator<Item = (usize, Verdict<O, E>)>) -> usize {
        let mut judged = 0;
        let mut late = 0;
        // Results and errors are dropped after the lock: their drop is user code.
        let mut refused = Vec::new();
        let mut replaced = Vec::new();
        let is_whole = {
            let mut slots = lock(&self.slots);
            for (index, verdict) in verdicts {
                match slots.judge(index, verdict) {
                    Ok(last) => {
                        judged += 1;
                        replaced.extend(last);
                    }
                    Err((verdict, is_late)) => {
                        late += usize::from(is_late);
                        refused.push(verdict);
                    }
                }
            }
            judged > 0 && slots.open == 0
        };
        panics::drop_each(refused.into_iter());
        panics::drop_each(replaced.into_iter());
        if late > 0
            && let Some(ledger) = self.ledger.upgrade()
        {
            (0..late).for_each(|_| ledger.late());
        }
        if is_whole {
            self.publish();
        }
        judged
    }

    /// Ends the items that are not resolved by `now`, and has the engine told when the next is over.
    pub(crate) fn time_out(&self, now: Time) {
        let mut replaced = Vec::new();
        let next = {
            let mut slots = lock(&self.slots);
            for index in 0..slots.known.spread().len() {
                let entry = &slots.known.spread()[index];
                if entry.deadline <= now && entry.slot.is_open() {
                    let timed_out = slots.judge(index, Verdict::Final(Err(BatchError::TimedOut)));
                    debug_assert!(timed_out.is_ok(), "the seat was open");
                    replaced.extend(timed_out.ok().flatten());
                }
            }
            let open = slots.known.spread().iter().filter(|entry| entry.slot.is_open());
            open.map(|entry| entry.deadline).min()
        };
        panics::drop_each(replaced.into_iter());
        if let (Some(next), Some(ledger)) = (next, self.ledger.upgrade()) {
            ledger.rearm(self.id, next);
        }
        self.publish();
    }

    /// Delivers what is resolved. The books are in order before anybody wakes up and looks.
    pub(crate) fn publish(&self) {
        let taken = lock(&self.slots).take_resolved();
        let count = taken.len();
        if count > 0 {
            let ledger = self.ledger.upgrade();
            if let Some(ledger) = &ledger {
                ledger.settle(self.id, &taken);
            } else if let Some(receipts) = &self.receipts {
                // Nobody is left to hear of an error; the items come back after the next start.
                let _ = receipts.acknowledge(ended(&taken, true).collect());
            }
            let mut round = Round::new();
            for entry in taken {
                if let Seat::Resolved(filler, outcome) = entry.slot {
                    round.fill(filler, outcome);
                }
            }
            let over = lock(&self.slots).delivered(count);
            let goes_on = match (&ledger, over) {
                // Only after the last result is there may the next batch of the key go.
                (Some(ledger), Some(again)) => ledger.finish(self.id, again),
                (Some(ledger), None) => {
                    ledger.delivered(self.id, count);
                    false
                }
                (None, again) => {
                    fail(again.into_iter().flatten().map(|(_, entry, _)| entry));
                    false
                }
            };
            round.finish();
            if let (true, Some(ledger)) = (goes_on, ledger) {
                ledger.go_on();
            }
        }
    }

    /// Notes that a batch that went through alone is one as any other from now on; says whether it
    /// was completed before.
    ///
    /// It may be completed right now, without notice of this or to this: who runs it sees to that.
    pub(crate) fn list(&self) -> bool {
        self.is_listed.store(true, Ordering::Release);
        self.is_complete.load(Ordering::Acquire)
    }

    /// Keeps the items of a batch that its panicking processor dropped.
    pub(crate) fn abandon(&self, items: Vec<I>) {
        lock(&self.slots).abandoned = Some(items);
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Ends a batch that its panicking processor dropped; without a message if the panic was
    /// caught before it came here.
    pub(crate) fn end_abandoned(&self, panic: Option<&str>) {
        if !self.is_abandoned.load(Ordering::Acquire) {
            return;
        }
        let items = lock(&self.slots).abandoned.take();
        if let Some(items) = items {
            drop(self.end(Items::Many(items), panic));
        }
    }

    /// Ends the batch whose items come back: what is open is unresolved, what is to be tried again
    /// goes to the queue; returns what was withdrawn.
    pub(crate) fn end(&self, items: Items<I>, panic: Option<&str>) -> Vec<(ItemId, I)> {
        if self.is_complete.load(Ordering::Acquire) {
            // Dropping items is user code.
            match items {
                Items::One(item) => panics::swallow(|| drop(item)),
                Items::Many(mut items) => {
                    panics::drop_each(items.drain(..));
                    let mut known = mem::take(&mut lock(&self.slots).known);
                    if let Some(ledger) = self.ledger.upgrade() {
                        ledger.recycle(Buffers::of(items, &mut known));
                    }
                }
            }
            return Vec::new();
        }
        let mut items = items.into_vec();
        self.judge_open(|| {
            Verdict::Final(Err(BatchError::Unresolved { panic: panic.map(str::to_owned) }))
        });
        self.publish();
        let (mut known, is_plain, has_again) = lock(&self.slots).close();
        let ledger = self.ledger.upgrade();
        let mut withdrawn = Vec::new();
        if is_plain {
            // Here, and not under the lock of the engine.
            known.spread().clear();
            // Dropping items is user code.
            panics::drop_each(items.drain(..));
        } else {
            let mut again = Vec::new();
            for (item, mut entry) in items.drain(..).zip(known.spread().drain(..)) {
                match mem::replace(&mut entry.slot, Seat::Delivered) {
                    Seat::Again(filler, error, why) => {
                        entry.slot = Seat::Open { filler, last: Some(error) };
                        again.push((item, entry, why));
                    }
                    Seat::TimedOut | Seat::Late if let Some(ledger) = &ledger => {
                        ledger.drop_timed_out(entry.id, item);
                    }
                    Seat::Withdrawn => withdrawn.push((entry.id, item)),
                    _ => panics::swallow(|| drop(item)),
                }
            }
            let again = if has_again { lock(&self.slots).put_back(again) } else { None };
            match (&ledger, again) {
                (Some(ledger), Some(again)) => {
                    if ledger.finish(self.id, again) {
                        ledger.go_on();
                    }
                }
                // The engine is gone: nobody tries again.
                (None, Some(again)) => fail(again.into_iter().map(|(_, entry, _)| entry)),
                // Or the thread that delivers the last of the other results puts them back.
                (_, None) => {}
            }
        }
        if let Some(ledger) = ledger {
            ledger.recycle(Buffers::of(items, &mut known));
        }
        withdrawn
    }
}

/// Returns the items of a round that came to their end. One that is let go of without a word when the
/// batcher `is_stopping` did not: a journal keeps it for the next start.
pub(crate) fn ended<O, E>(
    round: &[EntryOf<O, E>],
    is_stopping: bool,
) -> impl Iterator<Item = ItemId> {
    let is_left = move |slot: &Seat<O, E>| {
        is_stopping
            && matches!(slot, Seat::Resolved(_, Err(BatchError::Unresolved { panic: None })))
    };
    round.iter().filter(move |entry| !is_left(&entry.slot)).map(|entry| entry.id)
}

/// Delivers to items that may not be tried again the error of their last attempt.
pub(crate) fn fail<O, E>(entries: impl Iterator<Item = EntryOf<O, E>>) {
    let mut round = Round::new();
    for entry in entries {
        if let Seat::Open { filler, last } = entry.slot {
            round.fill(filler, failed(last));
        }
    }
    round.finish();
}

/// Returns the outcome of an item whose last attempt ended in `last`.
fn failed<O, E>(last: Option<Arc<E>>) -> Outcome<O, E> {
    Err(last.map_or(BatchError::Unresolved { panic: None }, BatchError::Failed))
}

impl<I, O, E> Slots<I, O, E> {
    /// Puts a verdict on a seat and returns the error of the attempt before, or gives it back and
    /// says whether it came too late.
    fn judge(&mut self, index: usize, verdict: Verdict<O, E>) -> Judged<O, E> {
        let Some(entry) = self.known.spread().get_mut(index) else { return Err((verdict, false)) };
        let is_final = matches!(verdict, Verdict::Final(_));
        let last = match entry.slot.judge(verdict) {
            Ok(last) => last,
            Err(verdict) => return Err((verdict, entry.slot.note_late())),
        };
        self.open -= 1;
        if is_final {
            self.resolved += 1;
        } else {
            self.again += 1;
        }
        Ok(last)
    }

    fn take_resolved(&mut self) -> Vec<EntryOf<O, E>> {
        let mut taken = Vec::with_capacity(self.resolved);
        if self.resolved > 0 {
            taken.extend(self.known.spread().iter_mut().filter_map(|entry| {
                let seat = entry.slot.take_resolved()?;
                Some(entry.with(seat))
            }));
            self.delivering += taken.len();
            self.resolved = 0;
        }
        taken
    }

    /// Notes the delivery of a round; if that was the last, the engine is to be told that the batch
    /// is over, with what is to be tried again.
    fn delivered(&mut self, count: usize) -> Option<Returned<I, O, E>> {
        self.delivering -= count;
        let is_parted = self.again == 0 || self.put_back.is_some();
        let is_over = self.open + self.resolved + self.delivering == 0 && is_parted;
        let is_news = is_over && !mem::replace(&mut self.finished, true);
        is_news.then(|| self.put_back.take().unwrap_or_default())
    }

    /// Takes the entries of a batch whose items are back: whether no item needs anything more, and
    /// whether some are to be tried again.
    fn close(&mut self) -> (Packed<Seat<O, E>>, bool, bool) {
        let entries = self.known.spread();
        let is_plain = entries.iter().all(|entry| entry.slot.is_plain());
        if self.again > 0 {
            // Until the engine has them back, these are nowhere else.
            let again = entries.iter().filter(|entry| !entry.slot.is_over());
            self.returned.extend(again.map(|entry| entry.id));
        }
        (mem::take(&mut self.known), is_plain, self.again > 0)
    }

    /// Gives back what is to be tried again, for the engine to be told that the batch is over. A
    /// thread that delivers other results at the time tells it instead.
    fn put_back(&mut self, again: Returned<I, O, E>) -> Option<Returned<I, O, E>> {
        if self.delivering > 0 {
            self.put_back = Some(again);
            return None;
        }
        self.finished = true;
        Some(again)
    }
}
