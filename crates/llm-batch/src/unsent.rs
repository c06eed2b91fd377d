//! A request before it is sent.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::processor::GroupKey;
use crate::request::Request;

/// A request that was submitted and is not sent: what a refusal and a close hand back.
///
/// Once its batch is worked on, its body is in the state folder and not in memory.
pub struct Unsent {
    id: String,
    key: GroupKey,
    request: Mutex<Option<Box<Request>>>,
}

impl Unsent {
    pub(crate) fn new(request: Request) -> Unsent {
        let key = (request.kind.clone(), request.model.clone());
        Unsent { id: request.id.clone(), key, request: Mutex::new(Some(Box::new(request))) }
    }

    /// Returns the caller's name for the request, or the one that it was given.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn key(&self) -> &GroupKey {
        &self.key
    }

    /// Takes the request out: it is about to be sent.
    pub(crate) fn take(&self) -> Option<Box<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives the request back.
    #[expect(clippy::missing_panics_doc, reason = "it never does")]
    pub fn into_request(self) -> Request {
        *self.take().expect("nobody is handed what is about to be sent")
    }
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent").field("id", &self.id).finish_non_exhaustive()
    }
}
