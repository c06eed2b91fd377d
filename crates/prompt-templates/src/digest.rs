use std::fmt;

use crate::Message;

/// A digest of 256 bits (BLAKE3): two texts with the same one are the same text.
///
/// ```
/// use prompt_templates::Digest;
///
/// let digest = Digest::of_text("Hello");
/// assert_eq!(digest, Digest::of_text("Hello"));
/// assert_eq!(digest.to_string().len(), 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of a text, such as a prompt that was rendered.
    pub fn of_text(text: &str) -> Self {
        Self(*blake3::hash(text.as_bytes()).as_bytes())
    }

    /// Returns the digest of messages: of each role and each content, with their lengths.
    pub fn of_messages(messages: &[Message]) -> Self {
        let mut hasher = Hasher::new("messages");
        for message in messages {
            hasher.field(message.role.as_str());
            hasher.field(&message.content);
        }
        hasher.end()
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Hashes fields with their lengths, so that no two lists of fields are the same bytes.
pub(crate) struct Hasher(blake3::Hasher);

impl Hasher {
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.field(domain);
        hasher
    }

    pub(crate) fn field(&mut self, field: &str) {
        self.0.update(&(field.len() as u64).to_le_bytes());
        self.0.update(field.as_bytes());
    }

    pub(crate) fn digest(&mut self, digest: Digest) {
        self.0.update(&digest.0);
    }

    pub(crate) fn end(self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}
