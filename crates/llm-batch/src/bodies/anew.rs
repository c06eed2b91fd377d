//! Bodies that are made anew when they are wanted, of requests that somebody has in memory anyway.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use serde_json::value::RawValue;

use crate::answer::RequestError;

/// Returns the body of the request with an index, the same each time.
pub(crate) type Encode = dyn Fn(usize) -> Result<Box<RawValue>, RequestError> + Send + Sync;

/// Makes bodies when they are read, and keeps none of them.
pub(crate) struct Anew {
    encode: Box<Encode>,
    /// Those that are being read, each until its end.
    open: Mutex<HashMap<usize, Box<RawValue>>>,
}

impl fmt::Debug for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anew").finish_non_exhaustive()
    }
}

impl Anew {
    pub(crate) fn new(encode: Box<Encode>) -> Anew {
        Anew { encode, open: Mutex::default() }
    }

    /// Fills `buffer` from the body of a request, which had that many bytes before.
    pub(crate) fn read(
        &self,
        index: usize,
        start: u64,
        bytes: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Not under the lock: this is the provider's code.
        let kept = open().remove(&index);
        let body = kept.map_or_else(|| (self.encode)(index).map_err(io::Error::other), Ok)?;
        let all = body.get().as_bytes();
        if all.len() as u64 != bytes {
            let problem = "the provider encodes the same request as more or fewer bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let start = usize::try_from(start).map_err(io::Error::other)?;
        let end = start.checked_add(buffer.len()).filter(|end| *end <= all.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(&all[start..end]);
        if end < all.len() {
            open().insert(index, body);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_body_is_made_once_for_each_time_that_it_is_read_and_not_kept() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let anew = Anew::new(Box::new(move |index| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(RawValue::from_string(format!("\"{index}234567\"")).unwrap())
        }));
        for times in 1..=3 {
            let mut body = [0; 9];
            let (first, rest) = body.split_at_mut(4);
            anew.read(1, 0, 9, first).unwrap();
            anew.read(1, 4, 9, rest).unwrap();
            assert_eq!((&body, made.load(Ordering::SeqCst)), (b"\"1234567\"", times));
            assert!(anew.open.lock().unwrap().is_empty());
        }
        assert!(anew.read(1, 1, 9, &mut [0; 9]).is_err());
        assert!(anew.read(1, 0, 8, &mut [0; 8]).is_err());
    }
}
