//! The data file: what it is, how it is made, and whether it is what it was.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::OpenError;
use crate::owner;
use crate::seal::Ledger;

/// Marks the file as ours: "BYJL".
const APPLICATION_ID: i32 = 0x4259_4a4c;

/// The version of the file that is written here.
pub(crate) const VERSION: i32 = 1;

/// For how long a transaction waits for a program such as `sqlite3` that is writing.
const BUSY: Duration = Duration::from_secs(5);

/// How large the log may stay once it has been moved to the file.
const LOG_BYTES: i64 = 4 << 20;

/// How many free pages make it worth to give them back when nothing is stored.
const FREE_PAGES: i64 = 1000;

/// SQLite has no smaller files.
const SMALLEST: u64 = 512;

const TABLES: [(&str, &str); 2] = [
    (
        "item",
        "CREATE TABLE item (epoch INTEGER NOT NULL, seq INTEGER NOT NULL, sum INTEGER NOT NULL, \
         payload BLOB NOT NULL, PRIMARY KEY (epoch, seq)) STRICT, WITHOUT ROWID",
    ),
    (
        "ledger",
        "CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), run INTEGER NOT NULL, \
         items INTEGER NOT NULL, seal INTEGER NOT NULL) STRICT",
    ),
];

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("journal.db")
}

/// Opens the file for its owner, or makes it. The connection leaves the log as it is when it is
/// closed, until [`trust`] is called.
pub(crate) fn open(folder: &Path) -> Result<Connection, OpenError> {
    let path = path(folder);
    if !exists(&path)? {
        create(folder, &path)?;
    }
    identify(&path)?;
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let fault = OpenError::sqlite("open", &path);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&fault)?;
    connection.pragma_update(None, "fullfsync", true).map_err(&fault)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true).map_err(&fault)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES).map_err(&fault)?;
    Ok(connection)
}

/// Opens the file to look at it. There may be an owner.
pub(crate) fn open_to_read(folder: &Path) -> Result<Connection, OpenError> {
    let path = path(folder);
    if !exists(&path)? {
        return Err(OpenError::Missing { path: folder.to_owned() });
    }
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    check_marks(&connection, &path)?;
    Ok(connection)
}

/// From here on the file is what it should be: the log moves to the file when it is closed.
pub(crate) fn trust(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let fault = OpenError::sqlite("tidy", path);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(&fault)?;
    Ok(())
}

/// Gives the room of a full file back once it is empty.
pub(crate) fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    if free > FREE_PAGES {
        connection.execute_batch("VACUUM")?;
    }
    Ok(())
}

/// Reads all that is stored but the payloads, and returns the ledger if it fits.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<Ledger, OpenError> {
    let fault = OpenError::sqlite("read", path);
    let damaged = |what: &str| OpenError::Corrupt { path: path.to_owned(), what: what.to_owned() };
    check_marks(connection, path)?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(&fault)?;
    if mode != "wal" {
        return Err(damaged(&format!("its journal mode is \"{mode}\", not \"wal\"")));
    }
    for (name, expected) in TABLES {
        let sql = "SELECT sql FROM sqlite_schema WHERE name = ?1";
        let found: String = connection.query_row(sql, [name], |row| row.get(0)).map_err(&fault)?;
        if found != expected {
            return Err(damaged(&format!("its table \"{name}\" is another")));
        }
    }
    let sound: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(&fault)?;
    if sound != "ok" {
        return Err(damaged(sound.trim()));
    }
    let sql = "SELECT run, items, seal FROM ledger WHERE one = 1";
    let (run, items, seal): (i64, i64, i64) = connection
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(&fault)?;
    let mut ledger = Ledger { run: run.cast_unsigned(), ..Ledger::default() };
    let mut statement = connection
        .prepare("SELECT epoch, seq, sum FROM item ORDER BY epoch, seq")
        .map_err(&fault)?;
    let mut rows = statement.query([]).map_err(&fault)?;
    let mut last = (-1_i64, -1_i64);
    while let Some(row) = rows.next().map_err(&fault)? {
        let id = (row.get(0).map_err(&fault)?, row.get(1).map_err(&fault)?);
        if id <= last || id.1 < 0 {
            return Err(damaged("its items are out of order"));
        }
        last = id;
        ledger.add(row.get(2).map_err(&fault)?);
    }
    if ledger.items != items.cast_unsigned() || ledger.seal() != seal {
        return Err(damaged("its items are not those that were stored"));
    }
    Ok(ledger)
}

/// Whether there is a file, and one that could be ours.
fn exists(path: &Path) -> Result<bool, OpenError> {
    let damaged = |path: &Path, what: &str| {
        Err(OpenError::Corrupt { path: path.to_owned(), what: what.to_owned() })
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(OpenError::Foreign {
            path: path.to_owned(),
            what: "it is no plain file".to_owned(),
        }),
        // SQLite would take it for a new file.
        Ok(found) if found.len() < SMALLEST => {
            damaged(path, &format!("it has only {} bytes", found.len()))
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let log = with_ending(path, "-wal");
            if fs::symlink_metadata(&log).is_ok_and(|log| log.len() > 0) {
                return damaged(path, "it is gone, and its log is still there");
            }
            Ok(false)
        }
        Err(error) => Err(OpenError::io("read", path)(error)),
    }
}

/// Makes the file under another name, so that it is whole or not there.
fn create(folder: &Path, path: &Path) -> Result<(), OpenError> {
    let fresh = folder.join("journal.new");
    for ending in ["", "-wal", "-shm", "-journal"] {
        let file = with_ending(&fresh, ending);
        match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(OpenError::io("remove", &file))?,
        }
    }
    let make = || File::options().write(true).create_new(true).mode(0o600).open(&fresh);
    make().map_err(OpenError::io("create", &fresh))?;
    let fault = OpenError::sqlite("create", &fresh);
    let connection = connect(&fresh, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(&fault)?;
    connection.pragma_update(None, "user_version", VERSION).map_err(&fault)?;
    for (_, table) in TABLES {
        connection.execute_batch(table).map_err(&fault)?;
    }
    let sql = "INSERT INTO ledger (one, run, items, seal) VALUES (1, 0, 0, ?1)";
    connection.execute(sql, [Ledger::default().seal()]).map_err(&fault)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(&fault)?;
    connection.close().map_err(|(_, error)| fault(error))?;
    File::open(&fresh).and_then(|file| file.sync_all()).map_err(OpenError::io("sync", &fresh))?;
    // Left by a file that somebody took away; it would be taken for the log of the new one.
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(with_ending(path, ending));
    }
    fs::rename(&fresh, path).map_err(OpenError::io("create", path))?;
    owner::sync_folder(folder)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let fault = OpenError::sqlite("open", path);
    let connection = Connection::open_with_flags(path, flags).map_err(&fault)?;
    connection.busy_timeout(BUSY).map_err(&fault)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(&fault)?;
    connection.pragma_update(None, "cell_size_check", true).map_err(&fault)?;
    Ok(connection)
}

/// Looks at the first page only, with no trace: neither a lock nor a file beside it.
///
/// It is SQLite that reads it: closing a file of our own would free the locks that connections in
/// this process have on the same file.
fn identify(path: &Path) -> Result<(), OpenError> {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fault = OpenError::sqlite("open", path);
    let connection = Connection::open_with_flags(uri, flags).map_err(&fault)?;
    // Without its log, the file may name more pages than it has: a checkpoint that was killed wrote
    // the first page and not yet the last. With this setting that is no damage to SQLite.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true).map_err(&fault)?;
    check_marks(&connection, path)
}

fn check_marks(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let mark = |name| connection.query_row(name, [], |row| row.get::<_, i32>(0));
    let fault = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => {
            OpenError::Foreign { path: path.to_owned(), what: "it is no SQLite file".to_owned() }
        }
        _ => OpenError::sqlite("read", path)(error),
    };
    let application = mark("PRAGMA application_id").map_err(fault)?;
    if application != APPLICATION_ID {
        let what = format!("it is an SQLite file with the mark {application:#010x}");
        return Err(OpenError::Foreign { path: path.to_owned(), what });
    }
    let version = mark("PRAGMA user_version").map_err(fault)?;
    match version {
        VERSION => Ok(()),
        ..=0 => Err(OpenError::Corrupt {
            path: path.to_owned(),
            what: format!("its version is {version}"),
        }),
        _ => Err(OpenError::Newer { path: path.to_owned(), version, known: VERSION }),
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
