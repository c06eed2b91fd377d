//! The ids that go on the wire in place of the callers' own.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::provider::CUSTOM_ID_LEN;

const NONCE_LEN: usize = 16;
const SEQ_LEN: usize = 6;

/// How many requests of one create can be numbered with `SEQ_LEN` digits.
pub(crate) const MAX_REQUESTS: usize = 1_000_000;

/// Returns 16 hexadecimal digits unlike any returned before, here or elsewhere.
///
/// It tells batches apart and proves results to be ours; it is no secret.
pub(crate) fn nonce() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut hasher = blake3::Hasher::new();
    // Each state is seeded by the operating system.
    for _ in 0..2 {
        hasher.update(&RandomState::new().build_hasher().finish().to_le_bytes());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.update(&now.as_nanos().to_le_bytes());
    hasher.update(&process::id().to_le_bytes());
    hasher.update(&COUNTER.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    hasher.finalize().to_hex()[..NONCE_LEN].to_owned()
}

/// Returns the id of request `seq` in the batch of `nonce`.
pub(crate) fn custom_id(nonce: &str, seq: usize) -> String {
    format!("{nonce}-{seq:0SEQ_LEN$}")
}

/// Returns the position that a custom id of the batch of `nonce` stands for.
pub(crate) fn seq_of(nonce: &str, custom_id: &str) -> Option<usize> {
    if custom_id.len() != CUSTOM_ID_LEN {
        return None;
    }
    let digits = custom_id.strip_prefix(nonce)?.strip_prefix('-')?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_positions() {
        let nonce = nonce();
        let id = custom_id(&nonce, 99_999);
        assert_eq!(id.len(), CUSTOM_ID_LEN);
        assert_eq!(seq_of(&nonce, &id), Some(99_999));
    }

    #[test]
    fn foreign_ids_are_nobodys() {
        let nonce = nonce();
        let other = super::nonce();
        assert_ne!(nonce, other);
        assert_eq!(seq_of(&nonce, &custom_id(&other, 1)), None);
        for id in
            ["", "1", &format!("{nonce}-+00001"), &format!("{nonce}-1"), &format!("{nonce}-é0001")]
        {
            assert_eq!(seq_of(&nonce, id), None, "{id}");
        }
    }
}
