//! What the tests ask of an engine, whatever its own API looks like.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Why a caller has no answer, in words for the table.
pub(crate) type Reply = Result<u64, String>;

/// One call on the way. The item is submitted at the latest when it is polled for the first time.
pub(crate) type Call<T = Reply> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The settings that a test needs; an engine takes those it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) max_items: usize,
    pub(crate) linger: Duration,
    /// Items queued and running that the engine may hold.
    pub(crate) capacity: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { max_items: 10, linger: Duration::from_millis(100), capacity: 10_000 }
    }
}

/// An engine that runs a [`Script`](crate::script::Script). It is started inside a tokio runtime.
pub(crate) trait Engine: Send + Sync {
    /// Submits one item and waits for its answer. The call keeps no handle of the engine once the
    /// item is submitted, as far as the API allows.
    fn call(&self, key: u64, item: u64) -> Call;

    /// Makes several calls that should share a batch.
    fn call_together(&self, items: Vec<u64>) -> Vec<Call> {
        items.into_iter().map(|item| self.call(0, item)).collect()
    }

    /// Submits many items by one call of the API; `None` without such a call.
    fn call_bulk(&self, _items: Vec<u64>) -> Option<Call<Result<Vec<u64>, String>>> {
        None
    }

    /// Makes a call from inside the processor, the way that its user would.
    fn call_inside(&self, item: u64) -> Call {
        self.call(0, item)
    }

    /// Submits an item and takes it back before it is sent.
    ///
    /// By default by dropping the call, which is the one way that futures have.
    fn call_and_cancel(&self, item: u64) -> Call<()> {
        let call = self.call(0, item);
        Box::pin(async move {
            let _ = tokio::time::timeout(Duration::from_millis(20), call).await;
        })
    }
}
