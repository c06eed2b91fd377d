//! The pull side: batches wait until somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;

use crate::batch::Batch;
use crate::batcher::Batcher;
use crate::builder::Builder;
use crate::error::BatchError;
use crate::id::{BatchId, ItemId};
use crate::processor::BatchProcessor;
use crate::seat::Verdict;
use crate::stats::PastBatch;
use crate::sync::{Arc, Mutex, lock};

/// Keeps its batches for those who ask, in place of processing them.
///
/// It suits engines that call us, as a workflow activity does. A puller looks at a batch with
/// [`next_pending`](Batcher::next_pending), claims it with [`mark_executing`](Batcher::mark_executing),
/// and says later what came of it, from any thread, by the ids of batch and items.
///
/// As the engine sees it, a batch is in flight from when it is parked until its last item has a
/// result. So with FIFO order a key has one batch here at a time, and the next fills meanwhile;
/// [`unordered`](Builder::unordered) lifts that.
///
/// When the last handle of the batcher is dropped, what is parked is unresolved, and so is what is
/// queued behind it; [`close`](Batcher::close) the batcher first to get its items back.
///
/// # Examples
/// ```
/// use batch_core::{Batcher, Pull};
///
/// let batcher: Batcher<Pull<(), u32, u32, String>> =
///     Pull::by(|_| ()).linger(std::time::Duration::from_secs(5)).build()?;
/// let tickets = batcher.submit_all([1, 2])?;
/// drop(batcher.flush());
///
/// let batch = batcher.next_pending().expect("two items wait");
/// assert!(batcher.mark_executing(batch.id()));
/// let results = batch.slots().map(|slot| (slot.id(), Ok(slot.item() * 10)));
/// batcher.mark_completed(batch.id(), results).expect("every id is of this batch");
///
/// let outputs: Vec<_> = tickets.wait().into_iter().filter_map(Result::ok).collect();
/// assert_eq!(outputs, [10, 20]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pull<K, I, O, E> {
    key: Box<dyn Fn(&I) -> K + Send + Sync>,
    shelf: Arc<Shelf<K, I, O, E>>,
}

/// The parked batches. No user code runs under its lock.
struct Shelf<K, I, O, E>(Mutex<Places<K, I, O, E>>);

struct Places<K, I, O, E> {
    all: BTreeMap<BatchId, Place<K, I, O, E>>,
    /// Those that wait to be claimed.
    pending: BTreeSet<BatchId>,
    /// The last handle of the batcher is gone.
    is_orphaned: bool,
}

struct Place<K, I, O, E> {
    parked: Arc<Parked<K, I, O, E>>,
    state: BatchState,
    attempts: u32,
    error: Option<Arc<E>>,
}

struct Parked<K, I, O, E> {
    key: K,
    batch: Batch<I, O, E>,
}

/// Says where a parked batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchState {
    /// It waits to be claimed.
    Pending,
    /// Somebody has claimed it.
    Executing,
    /// It failed, and is kept to be retried; its tickets wait.
    Failed,
}

/// Describes a parked batch.
#[non_exhaustive]
pub struct BatchInfo<K, E> {
    /// The id of the batch.
    pub id: BatchId,
    /// Its partition key.
    pub key: K,
    /// The number of its items.
    pub items: usize,
    /// Where it stands.
    pub state: BatchState,
    /// How often it was claimed.
    pub attempts: u32,
    /// The error it last failed with.
    pub error: Option<Arc<E>>,
}

impl<K: fmt::Debug, E> fmt::Debug for BatchInfo<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchInfo")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("items", &self.items)
            .field("state", &self.state)
            .field("attempts", &self.attempts)
            .field("has_error", &self.error.is_some())
            .finish()
    }
}

/// Lends a parked batch, which is the [`Batch`] it derefs to.
///
/// Its items can also be resolved here, slot by slot; once all are, it is no longer parked when
/// this is dropped.
pub struct PendingBatch<K, I, O, E> {
    parked: Arc<Parked<K, I, O, E>>,
    shelf: Arc<Shelf<K, I, O, E>>,
}

impl<K, I, O, E> PendingBatch<K, I, O, E> {
    /// Lends the partition key of the batch.
    pub fn key(&self) -> &K {
        &self.parked.key
    }
}

impl<K, I, O, E> Deref for PendingBatch<K, I, O, E> {
    type Target = Batch<I, O, E>;

    fn deref(&self) -> &Batch<I, O, E> {
        &self.parked.batch
    }
}

impl<K, I, O, E> Drop for PendingBatch<K, I, O, E> {
    fn drop(&mut self) {
        if self.parked.is_over() {
            drop(self.shelf.remove(self.id()));
        }
    }
}

impl<K: fmt::Debug, I, O, E> fmt::Debug for PendingBatch<K, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingBatch")
            .field("key", &self.parked.key)
            .field("batch", &self.parked.batch)
            .finish_non_exhaustive()
    }
}

impl<K, I, O, E> Parked<K, I, O, E> {
    /// Says whether every item has its result, or is out of time.
    fn is_over(&self) -> bool {
        self.batch.shared().open() == 0
    }
}

impl<K, I, O, E> Shelf<K, I, O, E> {
    fn remove(&self, id: BatchId) -> Option<Place<K, I, O, E>> {
        let mut places = lock(&self.0);
        places.pending.remove(&id);
        places.all.remove(&id)
    }

    /// Moves a batch on, with the error if it has failed, if it stands at one of `from`.
    fn set(&self, id: BatchId, from: &[BatchState], to: BatchState, error: Option<E>) -> bool {
        let error = error.map(Arc::new);
        let mut places = lock(&self.0);
        let Places { all, pending, .. } = &mut *places;
        let Some(place) = all.get_mut(&id).filter(|place| from.contains(&place.state)) else {
            return false;
        };
        place.state = to;
        place.attempts += u32::from(to == BatchState::Executing);
        match to {
            BatchState::Pending => pending.insert(id),
            BatchState::Executing | BatchState::Failed => pending.remove(&id),
        };
        let earlier = error.map(|error| place.error.replace(error));
        drop(places);
        // An error is user code when it is dropped.
        drop(earlier);
        true
    }

    /// Takes out what is not claimed and nobody looks at.
    fn take_idle(&self) -> Vec<Arc<Parked<K, I, O, E>>> {
        let mut places = lock(&self.0);
        let Places { all, pending, .. } = &mut *places;
        let idle = |place: &Place<K, I, O, E>| {
            place.state != BatchState::Executing && Arc::strong_count(&place.parked) == 1
        };
        let taken = all.extract_if(.., |_, place| idle(place));
        taken.map(|(id, place)| (pending.remove(&id), place.parked).1).collect()
    }
}

impl<K, I, O, E> Pull<K, I, O, E>
where
    Self: BatchProcessor<Key = K, Item = I, Output = O, Error = E>,
{
    /// Starts a batcher to pull from, whose items `key` groups.
    ///
    /// It has the default settings, but for two: it needs no thread to park a batch, so it is
    /// [`inline`](Builder::inline), and its items have no
    /// [`delivery_timeout`](Builder::delivery_timeout), since it is the puller who takes the time.
    pub fn by(key: impl Fn(&I) -> K + Send + Sync + 'static) -> Builder<Self> {
        let places = Places { all: BTreeMap::new(), pending: BTreeSet::new(), is_orphaned: false };
        let shelf = Arc::new(Shelf(Mutex::new(places)));
        Batcher::builder(Self { key: Box::new(key), shelf }).inline().delivery_timeout(None)
    }
}

impl<K, I, O, E> BatchProcessor for Pull<K, I, O, E>
where
    K: Ord + Clone + fmt::Debug + Send + Sync + 'static,
    I: Send + Sync + 'static,
    O: Send + 'static,
    E: Send + Sync + 'static,
{
    type Key = K;
    type Item = I;
    type Output = O;
    type Error = E;

    fn key(&self, item: &I) -> K {
        (self.key)(item)
    }

    fn process(&self, key: &K, batch: Batch<I, O, E>) {
        let id = batch.id();
        let parked = Arc::new(Parked { key: key.clone(), batch });
        let place = Place { parked, state: BatchState::Pending, attempts: 0, error: None };
        let mut places = lock(&self.shelf.0);
        if places.is_orphaned {
            // Nobody can pull any more.
            drop(places);
            return;
        }
        places.all.insert(id, place);
        places.pending.insert(id);
    }

    fn orphaned(&self) {
        let parked = {
            let mut places = lock(&self.shelf.0);
            places.is_orphaned = true;
            places.pending.clear();
            std::mem::take(&mut places.all)
        };
        // What is not resolved then is so without a result; what somebody looks at is theirs.
        drop(parked);
    }
}

impl<K, I, O, E> fmt::Debug for Pull<K, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = lock(&self.shelf.0);
        f.debug_struct("Pull")
            .field("parked", &places.all.len())
            .field("pending", &places.pending.len())
            .finish_non_exhaustive()
    }
}

/// The pull side. None of these calls blocks or waits; each takes a lock for a moment.
impl<K, I, O, E> Batcher<Pull<K, I, O, E>>
where
    Pull<K, I, O, E>: BatchProcessor<Key = K, Item = I, Output = O, Error = E>,
    K: Clone,
{
    fn shelf(&self) -> &Arc<Shelf<K, I, O, E>> {
        &self.processor().shelf
    }

    /// Lends the oldest batch that waits to be claimed; it goes on waiting.
    pub fn next_pending(&self) -> Option<PendingBatch<K, I, O, E>> {
        loop {
            let places = lock(&self.shelf().0);
            let place = places.all.get(places.pending.first()?)?;
            let parked = Arc::clone(&place.parked);
            drop(places);
            // One whose items ran out of time is taken off the shelf as this is dropped.
            let pending = PendingBatch { parked, shelf: Arc::clone(self.shelf()) };
            if !pending.parked.is_over() {
                return Some(pending);
            }
        }
    }

    /// Claims a batch that waits; false if somebody else was first, or it is not parked.
    pub fn mark_executing(&self, id: BatchId) -> bool {
        self.shelf().set(id, &[BatchState::Pending], BatchState::Executing, None)
    }

    /// Delivers results, claimed or not; the batch is no longer parked. Its other items get
    /// [`BatchError::Unresolved`].
    ///
    /// # Errors
    /// Gives back the ids whose result reached nobody: they are not of this batch, came twice, or
    /// had their end before. If the batch is not parked, these are all; none if none was given.
    pub fn mark_completed(
        &self,
        id: BatchId,
        results: impl IntoIterator<Item = (ItemId, Result<O, E>)>,
    ) -> Result<(), Vec<ItemId>> {
        // The results are computed first: if that panics, the batch is still parked.
        let results: Vec<_> = results.into_iter().collect();
        let Some(place) = self.shelf().remove(id) else {
            return Err(results.into_iter().map(|(id, _)| id).collect());
        };
        let batch = &place.parked.batch;
        let slots: BTreeMap<_, _> = batch.slots().map(|slot| (slot.id(), slot)).collect();
        let mut strays = Vec::new();
        for (id, result) in results {
            if !slots.get(&id).is_some_and(|slot| slot.resolve(result)) {
                strays.push(id);
            }
        }
        // Now, not when the last who looks at the batch lets go of it.
        let missing = || Verdict::Final(Err(BatchError::Unresolved { panic: None }));
        batch.shared().judge_open(missing);
        if strays.is_empty() { Ok(()) } else { Err(strays) }
    }

    /// Notes that a batch failed, claimed or not, and keeps it until it is [retried](Self::retry):
    /// its tickets wait. False if it is not parked.
    ///
    /// To end it instead, complete it with errors, or with nothing.
    pub fn mark_failed(&self, id: BatchId, error: E) -> bool {
        let from = [BatchState::Pending, BatchState::Executing, BatchState::Failed];
        self.shelf().set(id, &from, BatchState::Failed, Some(error))
    }

    /// Lets a failed batch wait to be claimed again, at its old place in the order. False if it is
    /// not parked or has not failed.
    pub fn retry(&self, id: BatchId) -> bool {
        self.shelf().set(id, &[BatchState::Failed], BatchState::Pending, None)
    }

    /// Describes a parked batch.
    pub fn batch(&self, id: BatchId) -> Option<BatchInfo<K, E>> {
        let places = lock(&self.shelf().0);
        let place = places.all.get(&id)?;
        let (state, attempts, error) = (place.state, place.attempts, place.error.clone());
        let parked = Arc::clone(&place.parked);
        drop(places);
        let key = parked.key.clone();
        Some(BatchInfo { id, key, items: parked.batch.len(), state, attempts, error })
    }

    /// Returns the number of batches that wait to be claimed.
    pub fn pending(&self) -> usize {
        lock(&self.shelf().0).pending.len()
    }

    /// Returns the batches whose items are all final, oldest first: the
    /// [`history`](Batcher::history), of as many as [`Builder::history`] allows.
    pub fn executed(&self) -> Vec<PastBatch<K>> {
        self.history()
    }

    /// Gives back the items that are queued, or parked and not claimed, oldest first; their
    /// tickets say [`BatchError::Cancelled`].
    ///
    /// What somebody has claimed or holds a [`PendingBatch`] of stays, as do the items that wait
    /// behind it for their turn. Items that are submitted meanwhile may come along, so that it does not
    /// end while others submit without a pause.
    pub fn clear(&self) -> Vec<(ItemId, I)> {
        let mut cleared = Vec::new();
        loop {
            // What is queued is parked by this, as far as its key has its turn.
            drop(self.flush());
            let idle = self.shelf().take_idle();
            if idle.is_empty() {
                break;
            }
            let parked = idle.into_iter().filter_map(Arc::into_inner);
            cleared.extend(parked.flat_map(|parked| parked.batch.withdraw()));
        }
        cleared.sort_by_key(|(id, _)| *id);
        cleared
    }
}
