//! What makes two requests the same request.

use crate::provider::Provider;
use crate::request::Request;

/// A digest, as bytes; in files it is hexadecimal.
pub(crate) type Digest = [u8; 32];

/// Returns the digest of everything that decides an answer: kind, model, provider, base URL and
/// what goes on the wire. The id is not in it; id and digest together are a request's identity.
pub(crate) fn digest(provider: &dyn Provider, request: &Request, encoded: &str) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let parts = [
        "llm-batch request 1",
        provider.name(),
        provider.endpoint(),
        request.kind.as_str(),
        &request.model,
        encoded,
    ];
    for part in parts {
        // The length in front keeps one part from running into the next.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().into()
}

pub(crate) fn to_hex(digest: Digest) -> String {
    blake3::Hash::from_bytes(digest).to_hex().to_string()
}

pub(crate) fn from_hex(hex: &str) -> Option<Digest> {
    blake3::Hash::from_hex(hex).ok().map(Into::into)
}
