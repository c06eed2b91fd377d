//! A look from outside.

use std::path::Path;

use batch_core::ItemId;
use rusqlite::OptionalExtension;

use crate::error::OpenError;
use crate::{file, owner};

/// What is in a journal at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// How many items are stored and not acknowledged.
    pub items: u64,
    /// The oldest of them.
    pub oldest: Option<ItemId>,
    /// The newest of them.
    pub newest: Option<ItemId>,
    /// How often the journal was opened, which is the epoch of the newest ids.
    pub run: u64,
    /// What the owner says of itself, if there is one.
    pub owner: Option<String>,
}

/// Looks at the journal in `dir`, whether it has an owner or not; neither waits for the other.
///
/// It costs a few reads, whatever is stored.
///
/// ```
/// use batch_journal::{Bytes, Options, SqliteJournal, status};
///
/// let dir = tempfile::tempdir()?;
/// let journal = SqliteJournal::open(dir.path(), Bytes, Options::default())?;
/// let status = status(dir.path())?;
/// assert_eq!((status.items, status.run), (0, 1));
/// assert!(status.owner.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// There is no journal, it cannot be read, or it is damaged, newer, or something else.
pub fn status(dir: impl AsRef<Path>) -> Result<Status, OpenError> {
    let dir = dir.as_ref();
    let missing = |_| OpenError::Missing { path: dir.to_owned() };
    let folder = dir.canonicalize().map_err(missing)?;
    let path = file::path(&folder);
    let fault = OpenError::sqlite("read", &path);
    let mut connection = file::open_to_read(&folder)?;
    // One moment for all the questions.
    let transaction = connection.transaction().map_err(&fault)?;
    let sql = "SELECT run, items FROM ledger WHERE one = 1";
    let (run, items): (i64, i64) =
        transaction.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(&fault)?;
    let end = |order: &str| {
        let sql =
            format!("SELECT epoch, seq FROM item ORDER BY epoch {order}, seq {order} LIMIT 1");
        let id = |row: &rusqlite::Row<'_>| {
            let (epoch, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(ItemId { epoch: epoch.cast_unsigned(), seq: seq.cast_unsigned() })
        };
        transaction.query_row(&sql, [], id).optional().map_err(&fault)
    };
    let (oldest, newest) = (end("ASC")?, end("DESC")?);
    Ok(Status {
        items: items.cast_unsigned(),
        oldest,
        newest,
        run: run.cast_unsigned(),
        owner: owner::find(&folder)?,
    })
}
