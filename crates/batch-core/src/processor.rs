//! The trait that turns many small jobs into one expensive call.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::Batch;

/// The batch that a processor of type `P` is given.
pub type BatchOf<P> =
    Batch<<P as BatchProcessor>::Item, <P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;

/// Processes a batch of items in one call.
///
/// The engine gives the processor an owned [`Batch`] whose slots it resolves, at once or hours
/// later, from any thread. What is unresolved when the batch is dropped gets a typed error, so no
/// caller waits for ever and no result can reach another caller.
///
/// The trait is object safe; `Box<P>` and `Arc<P>` are processors where `P` is one.
///
/// # Examples
/// ```
/// use batch_core::{BatchOf, BatchProcessor, Batcher};
///
/// struct Double;
///
/// impl BatchProcessor for Double {
///     type Key = ();
///     type Item = u32;
///     type Output = u32;
///     type Error = std::convert::Infallible;
///
///     fn key(&self, _: &u32) {}
///
///     fn process(&self, (): &(), batch: BatchOf<Self>) {
///         for slot in batch.slots() {
///             slot.resolve(Ok(slot.item() * 2));
///         }
///     }
/// }
///
/// let batcher = Batcher::new(Double)?;
/// assert_eq!(batcher.submit(21)?.wait()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BatchProcessor: Send + Sync + 'static {
    /// The partition key: only items of one key share a batch. `()` for one group.
    ///
    /// It is compared, cloned and dropped while the engine holds its lock, so none of these may
    /// panic, block or use the batcher.
    type Key: Ord + Clone + Debug + Send + Sync + 'static;
    /// One small job.
    type Item: Send + 'static;
    /// The result of one job.
    type Output: Send + 'static;
    /// Why one job failed.
    type Error: Send + Sync + 'static;

    /// Returns the group of an item. Asked once, before admission, under no lock.
    fn key(&self, item: &Self::Item) -> Self::Key;

    /// Returns the weight of an item, in whatever unit the limits use. Asked once, before
    /// admission, under no lock.
    fn weight(&self, _item: &Self::Item) -> u64 {
        1
    }

    /// Runs one batch: resolves its slots, now or later.
    ///
    /// A panic is caught: what was resolved before it is delivered, the rest gets
    /// [`BatchError::Unresolved`](crate::BatchError::Unresolved) with the message.
    fn process(&self, key: &Self::Key, batch: BatchOf<Self>);

    /// Says what is to become of an item that was resolved with `error`.
    ///
    /// Called inside [`Slot::resolve`](crate::Slot::resolve) and its likes, on the thread that
    /// resolves and under no lock. Slots that nobody resolved are not asked about: they fail.
    fn classify(&self, _error: &Self::Error) -> Disposition {
        Disposition::Fail
    }

    /// Hears that the last handle of its batcher is gone: nobody can call through it any more.
    ///
    /// What was accepted is still processed. A processor that keeps batches until somebody asks for
    /// them through the batcher lets go of them here. Called once, under no lock; a panic in it is
    /// caught.
    fn orphaned(&self) {}
}

/// What is to become of an item whose processing failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// The item ends with its error.
    #[default]
    Fail,
    /// The item is sent again, with the other items of its batch that are; it ends with its error
    /// once its attempts, the budget of the batcher or its delivery time-out do not allow it.
    Retry {
        /// The least time before that, such as a server's `retry-after`; the delay of the retry
        /// policy is drawn besides, and the longer of the two holds.
        after: Option<Duration>,
    },
    /// The batch cannot be processed as it is, maybe over one of its items: those resolved so are
    /// sent again at once, in two halves. An item that was alone in its batch ends with its error.
    ///
    /// One bad item among `n` costs `1 + 2 * ceil(log2(n))` calls at most. Good items are processed
    /// more than once, so the processor has to be idempotent, or a failed call without effect; and
    /// items that need each other must not be split.
    Split,
    /// The item ends with its error, and the batcher sends and accepts nothing any more.
    Fatal,
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<P: BatchProcessor + ?Sized> BatchProcessor for $pointer<P> {
            type Key = P::Key;
            type Item = P::Item;
            type Output = P::Output;
            type Error = P::Error;

            fn key(&self, item: &Self::Item) -> Self::Key {
                (**self).key(item)
            }

            fn weight(&self, item: &Self::Item) -> u64 {
                (**self).weight(item)
            }

            fn process(&self, key: &Self::Key, batch: BatchOf<Self>) {
                (**self).process(key, batch);
            }

            fn classify(&self, error: &Self::Error) -> Disposition {
                (**self).classify(error)
            }

            fn orphaned(&self) {
                (**self).orphaned();
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// Makes a processor of one group from a function over the items.
///
/// The function returns one result per item, in their order. Another number of results fails the
/// whole batch with [`BatchError::WrongCount`](crate::BatchError::WrongCount): no result is ever
/// shifted to another caller.
///
/// # Examples
/// ```
/// use batch_core::{BatchError, Batcher, batch_fn};
///
/// let parse = |texts: &[String]| texts.iter().map(|text| text.parse::<i32>()).collect();
/// let batcher = Batcher::new(batch_fn(parse))?;
/// let outcomes = batcher.submit_all(["7", "x", "9"].map(String::from))?.wait();
/// assert!(matches!(&outcomes[..], [Ok(7), Err(BatchError::Failed(_)), Ok(9)]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn batch_fn<I, O, E, F>(
    run: F,
) -> impl BatchProcessor<Key = (), Item = I, Output = O, Error = E>
where
    I: Send + 'static,
    O: Send + 'static,
    E: Send + Sync + 'static,
    F: Fn(&[I]) -> Vec<Result<O, E>> + Send + Sync + 'static,
{
    keyed_fn(|_: &I| (), move |(), batch: Batch<I, O, E>| batch.resolve_all(run(batch.items())))
}

/// Makes a processor from a function that names the group of an item and one that runs a batch.
pub fn keyed_fn<K, I, O, E, N, F>(
    key: N,
    run: F,
) -> impl BatchProcessor<Key = K, Item = I, Output = O, Error = E>
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    I: Send + 'static,
    O: Send + 'static,
    E: Send + Sync + 'static,
    N: Fn(&I) -> K + Send + Sync + 'static,
    F: Fn(&K, Batch<I, O, E>) + Send + Sync + 'static,
{
    Keyed { key, run, types: PhantomData }
}

/// Names the types without owning values of them.
type Types<K, I, O, E> = (fn(I) -> K, fn() -> Result<O, E>);

struct Keyed<N, F, K, I, O, E> {
    key: N,
    run: F,
    types: PhantomData<Types<K, I, O, E>>,
}

impl<N, F, K, I, O, E> Debug for Keyed<N, F, K, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

impl<N, F, K, I, O, E> BatchProcessor for Keyed<N, F, K, I, O, E>
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    I: Send + 'static,
    O: Send + 'static,
    E: Send + Sync + 'static,
    N: Fn(&I) -> K + Send + Sync + 'static,
    F: Fn(&K, Batch<I, O, E>) + Send + Sync + 'static,
{
    type Key = K;
    type Item = I;
    type Output = O;
    type Error = E;

    fn key(&self, item: &I) -> K {
        (self.key)(item)
    }

    fn process(&self, key: &K, batch: Batch<I, O, E>) {
        (self.run)(key, batch);
    }
}
