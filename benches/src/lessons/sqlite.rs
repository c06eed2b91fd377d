//! The same lessons in SQLite, with an index for each question.

use rusqlite::{Connection, params};

use super::port::Lesson;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Is a database in memory.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Loads a file of lessons into rows with eight indexes.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with a line or the database.
    pub fn load(text: &str) -> Result<Self> {
        let mut connection = Connection::open_in_memory()?;
        connection.execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; PRAGMA cache_size = -1500000;
             CREATE TABLE lessons (
                 id TEXT PRIMARY KEY, task TEXT, activity TEXT, failure TEXT, message TEXT,
                 resolution TEXT, pattern TEXT, times INTEGER, last TEXT, raw TEXT
             );",
        )?;
        let all = connection.transaction()?;
        {
            let mut insert = all.prepare(
                "INSERT INTO lessons VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)
                 ON CONFLICT (id) DO UPDATE SET raw = excluded.raw",
            )?;
            for line in text.lines() {
                let lesson: Lesson = serde_json::from_str(line)?;
                insert.execute(params![
                    lesson.id,
                    lesson.task_type,
                    lesson.activity_type,
                    lesson.failure_type,
                    lesson.failure_msg,
                    lesson.resolution,
                    lesson.pattern,
                    i64::try_from(lesson.times_seen)?,
                    lesson.last_seen,
                    line,
                ])?;
            }
        }
        all.commit()?;
        connection.execute_batch(
            "CREATE INDEX task ON lessons (task, last);
             CREATE INDEX activity ON lessons (activity, last);
             CREATE INDEX failure ON lessons (failure, last);
             CREATE INDEX pattern ON lessons (pattern, last);
             CREATE INDEX last ON lessons (last);
             CREATE INDEX times ON lessons (times);
             CREATE INDEX three ON lessons (task, activity, failure, last, id);",
        )?;
        Ok(Self { connection })
    }

    /// Adds full-text search: trigrams of the messages, and words of messages and resolutions.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database.
    pub fn add_text(&self) -> Result<()> {
        self.connection.execute_batch(
            "CREATE VIRTUAL TABLE parts USING fts5(
                 message, content = lessons, tokenize = 'trigram', detail = none
             );
             INSERT INTO parts (rowid, message) SELECT rowid, message FROM lessons;
             CREATE VIRTUAL TABLE words USING fts5(message, resolution, content = lessons);
             INSERT INTO words (rowid, message, resolution)
                 SELECT rowid, message, resolution FROM lessons;",
        )?;
        Ok(())
    }

    /// Returns the line of a lesson.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database; an unknown id is an error.
    pub fn get(&self, id: &str) -> Result<String> {
        let mut get = self.connection.prepare_cached("SELECT raw FROM lessons WHERE id = ?1")?;
        Ok(get.query_row([id], |row| row.get(0))?)
    }

    /// Returns the ids of the newest lessons with these values.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database.
    pub fn newest(&self, task: &str, activity: &str, failure: &str) -> Result<Vec<String>> {
        let mut find = self.connection.prepare_cached(
            "SELECT id FROM lessons WHERE task = ?1 AND activity = ?2 AND failure = ?3
             ORDER BY last DESC, id LIMIT 10",
        )?;
        let ids = find.query_map([task, activity, failure], |row| row.get(0))?;
        Ok(ids.collect::<std::result::Result<_, _>>()?)
    }

    /// Returns how many messages hold a text, of 20 at most.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database.
    pub fn containing(&self, text: &str) -> Result<usize> {
        let mut find = self.connection.prepare_cached(
            "SELECT rowid FROM parts WHERE message LIKE ?1 ORDER BY rowid DESC LIMIT 20",
        )?;
        let rows = find.query_map([format!("%{text}%")], |row| row.get::<_, i64>(0))?;
        Ok(rows.count())
    }

    /// Returns the ids of the best ten lessons for a text.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database.
    pub fn best(&self, text: &str) -> Result<Vec<String>> {
        let words: Vec<String> = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| word.len() > 1)
            .map(|word| format!("\"{word}\""))
            .collect();
        let mut find = self.connection.prepare_cached(
            "SELECT lessons.id FROM words JOIN lessons ON lessons.rowid = words.rowid
             WHERE words MATCH ?1 ORDER BY rank LIMIT 10",
        )?;
        let ids = find.query_map([words.join(" OR ")], |row| row.get(0))?;
        Ok(ids.collect::<std::result::Result<_, _>>()?)
    }

    /// Replaces a lesson.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the database.
    pub fn upsert(&self, id: &str, raw: &str) -> Result<()> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO lessons (id, raw, times, task, last) VALUES (?1, ?2, 1, 'x', 'y')
             ON CONFLICT (id) DO UPDATE SET raw = excluded.raw, times = times + 1",
        )?;
        put.execute([id, raw])?;
        Ok(())
    }
}
