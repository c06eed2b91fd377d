//! The hash of the tables in memory. It differs from process to process and is never stored.

use std::hash::{BuildHasher, Hasher as _};
use std::sync::LazyLock;

pub(crate) type Hasher = foldhash::fast::RandomState;

static STATE: LazyLock<Hasher> = LazyLock::new(Hasher::default);

/// Hashes an id; the same all over the process, so that it can be handed from part to part.
pub(crate) fn of(text: &str) -> u64 {
    of_bytes(text.as_bytes())
}

/// Hashes the bytes of an id.
#[inline]
pub(crate) fn of_bytes(text: &[u8]) -> u64 {
    of_word(&STATE, text)
}

/// Returns what words are hashed with.
pub(crate) fn hasher() -> &'static Hasher {
    &STATE
}

/// Hashes a word of a text.
pub(crate) fn of_word(hasher: &Hasher, word: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(word);
    hasher.finish()
}
