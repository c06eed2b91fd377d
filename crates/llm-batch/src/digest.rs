//! What makes two requests the same request.

use crate::provider::Provider;
use crate::request::Request;

/// A digest, as bytes; in files it is hexadecimal.
pub(crate) type Digest = [u8; 32];

/// Returns the digest of everything that decides an answer: kind, model, provider, base URL and
/// what goes on the wire. The id is not in it; id and digest together are a request's identity.
pub(crate) fn digest(provider: &dyn Provider, request: &Request, encoded: &str) -> Digest {
    hash([
        "llm-batch request 1",
        provider.name(),
        provider.endpoint(),
        request.kind.as_str(),
        &request.model,
        encoded,
    ])
    .into()
}

/// Returns what tells one key from another, and is not the key. Who reads the folder can only try
/// keys, one by one for each salt: a key that can be guessed can be found, such as the short one of
/// a server of one's own.
pub(crate) fn account(salt: &str, endpoint: &str, key: &str) -> String {
    let hash = hash(["llm-batch account 1", salt, endpoint, key]);
    hash.to_hex()[..32].to_owned()
}

pub(crate) fn hash<const N: usize>(parts: [&str; N]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // The length in front keeps one part from running into the next.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize()
}

pub(crate) fn to_hex(digest: Digest) -> String {
    blake3::Hash::from_bytes(digest).to_hex().to_string()
}

pub(crate) fn from_hex(hex: &str) -> Option<Digest> {
    blake3::Hash::from_hex(hex).ok().map(Into::into)
}
