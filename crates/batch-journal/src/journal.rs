//! The journal of one owner.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use batch_core::{ItemId, Journal, JournalError, JournalErrorKind};

use crate::codec::Codec;
use crate::error::{Failure, OpenError};
use crate::file;
use crate::group::Group;
use crate::options::Options;
use crate::owner::{self, Owner};
use crate::seal;
use crate::store::{self, Request, Row, Store, WriteStats};

/// A journal in a folder of its own, owned by one process at a time.
///
/// It is [`Send`] and [`Sync`]; share it in an [`Arc`](std::sync::Arc). Dropping it blocks for the
/// time of a few writes.
///
/// ```
/// use batch_core::Journal;
/// use batch_journal::{Bytes, Options, SqliteJournal};
///
/// let dir = tempfile::tempdir()?;
/// let item = b"pay 7".to_vec();
/// let journal = SqliteJournal::open(dir.path(), Bytes, Options::default())?;
/// let id = journal.reserve(1);
/// journal.append(&[(id, &item)])?; // From here on the item is safe.
/// drop(journal);
///
/// let journal = SqliteJournal::open(dir.path(), Bytes, Options::default())?;
/// let next = journal.reserve(0);
/// assert!(next > id);
/// let left: Vec<(_, Vec<u8>)> = journal.unacked(next)?;
/// assert_eq!(left, [(id, item)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteJournal<C> {
    codec: C,
    path: PathBuf,
    max_item_bytes: usize,
    run: u64,
    next: AtomicU64,
    // Before the lock: what is closed must be closed before another owner comes.
    group: Group,
    _owner: Owner,
}

impl<C> SqliteJournal<C> {
    /// Opens the journal in `dir`, or makes one, and the folder too, with mode 0700.
    ///
    /// It reads all that is stored but the payloads. It blocks for the time of a few writes and,
    /// if the journal is held, up to [`Options::wait`].
    ///
    /// # Errors
    /// Somebody else has it, or what is there is damaged, newer, or something else; each error names
    /// the file and says what can be done. The stored data is then as before.
    pub fn open(dir: impl AsRef<Path>, codec: C, options: Options) -> Result<Self, OpenError> {
        let folder = owner::private_folder(dir.as_ref())?;
        let owner = Owner::acquire(&folder, options.wait)?;
        let path = file::path(&folder);
        let connection = file::open(&folder)?;
        let ledger = file::check(&connection, &path)?;
        if ledger.items == 0 {
            file::shrink(&connection).map_err(OpenError::sqlite("write to", &path))?;
        }
        file::trust(&connection, &path)?;
        let store = Store::begin(connection, path.clone(), options.durability, ledger)
            .map_err(OpenError::sqlite("write to", &path))?;
        Ok(Self {
            codec,
            path,
            max_item_bytes: options.max_item_bytes,
            run: store.run(),
            next: AtomicU64::new(0),
            group: Group::new(store),
            _owner: owner,
        })
    }

    /// Reserves ids, as [`Journal::reserve`] does for items of any type.
    ///
    /// A run has 2^63 - 1 of them. Those that are reserved after that are refused by
    /// [`append`](Journal::append), until the journal is opened anew.
    pub fn reserve(&self, count: u64) -> ItemId {
        let more = |next: u64| Some(next.saturating_add(count));
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let (Ok(seq) | Err(seq)) = next;
        ItemId { epoch: self.run, seq }
    }

    /// Forgets items, as [`Journal::ack`] does for items of any type.
    ///
    /// # Errors
    /// The storage failed; the items come back after the next start.
    pub fn ack(&self, ids: &[ItemId]) -> Result<(), JournalError> {
        if ids.is_empty() {
            return Ok(());
        }
        let request = Request { acks: ids.to_vec(), ..Request::default() };
        Ok(self.group.submit(request)?)
    }

    /// Returns the data file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what was written since the journal was opened. It waits for a write that is under way.
    pub fn write_stats(&self) -> WriteStats {
        self.group.stats()
    }

    fn encode<I>(&self, items: &[(ItemId, &I)]) -> Result<Request, Failure>
    where
        C: Codec<I>,
    {
        let mut request = Request { rows: Vec::with_capacity(items.len()), ..Request::default() };
        for &(id, item) in items {
            if !store::has_place(id) {
                let what = format!("no id as large as that of item {id} is stored; open it anew");
                return Err(Failure::new(JournalErrorKind::Stopped, what));
            }
            let start = request.bytes.len();
            let encoded = self.codec.encode(item, &mut request.bytes);
            encoded.map_err(|error| {
                let what = format!("cannot turn item {id} into bytes");
                Failure::new(JournalErrorKind::Codec, what).caused_by(error)
            })?;
            let payload = request.bytes.get(start..).unwrap_or_default();
            if payload.len() > self.max_item_bytes {
                let (has, most) = (payload.len(), self.max_item_bytes);
                let what = format!("item {id} has {has} bytes, and at most {most} are taken");
                return Err(Failure::new(JournalErrorKind::TooLarge, what));
            }
            let sum = seal::of_item(id, payload);
            request.rows.push(Row { id, sum, payload: start..request.bytes.len() });
        }
        Ok(request)
    }
}

impl<I, C: Codec<I>> Journal<I> for SqliteJournal<C> {
    fn reserve(&self, count: u64) -> ItemId {
        self.reserve(count)
    }

    fn append(&self, items: &[(ItemId, &I)]) -> Result<(), JournalError> {
        if items.is_empty() {
            return Ok(());
        }
        let request = self.encode(items)?;
        Ok(self.group.submit(request)?)
    }

    fn ack(&self, ids: &[ItemId]) -> Result<(), JournalError> {
        self.ack(ids)
    }

    fn unacked(&self, before: ItemId) -> Result<Vec<(ItemId, I)>, JournalError> {
        let mut items = Vec::new();
        let take = |id, bytes: &[u8]| {
            let item = self.codec.decode(bytes).map_err(|error| {
                let what = format!("cannot make item {id} of its bytes");
                Failure::new(JournalErrorKind::Codec, what).caused_by(error)
            })?;
            items.push((id, item));
            Ok::<(), Failure>(())
        };
        self.group.with_store(|store| store.read(before, take))?;
        Ok(items)
    }
}

impl<C> fmt::Debug for SqliteJournal<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal")
            .field("path", &self.path)
            .field("run", &self.run)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
