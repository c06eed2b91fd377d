//! Items to bytes and back.

use std::convert::Infallible;
use std::error::Error;

/// Turns items into the bytes that are stored, and back.
///
/// What one version of a program stored, the next has to read: a codec is a file format. JSON with
/// the fields of the item is a good one:
///
/// ```
/// use batch_journal::Codec;
///
/// struct Json;
///
/// impl Codec<Vec<String>> for Json {
///     type Error = serde_json::Error;
///
///     fn encode(&self, item: &Vec<String>, bytes: &mut Vec<u8>) -> Result<(), Self::Error> {
///         serde_json::to_writer(bytes, item)
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<Vec<String>, Self::Error> {
///         serde_json::from_slice(bytes)
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Json.encode(&vec!["a".to_owned()], &mut bytes)?;
/// assert_eq!(bytes, br#"["a"]"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait Codec<I>: Send + Sync + 'static {
    /// What can go wrong.
    type Error: Error + Send + Sync + 'static;

    /// Appends the bytes of `item` to `bytes`, which may hold those of other items.
    ///
    /// # Errors
    /// The item has no such bytes; it is not accepted then.
    fn encode(&self, item: &I, bytes: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Makes the item of its bytes, which are exactly those that [`encode`](Self::encode) appended.
    ///
    /// # Errors
    /// The bytes are of no item that this codec knows.
    fn decode(&self, bytes: &[u8]) -> Result<I, Self::Error>;
}

/// The codec of items that are bytes already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes;

impl Codec<Vec<u8>> for Bytes {
    type Error = Infallible;

    fn encode(&self, item: &Vec<u8>, bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        bytes.extend_from_slice(item);
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, Infallible> {
        Ok(bytes.to_vec())
    }
}
