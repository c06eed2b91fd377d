//! A provider of a test: plain where the test says nothing else.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use llm_batch::{
    Answer, Call, CallError, Collected, CreateError, Created, Draft, Entry, Limits, Progress,
    Provider, Request, RequestError, Sink,
};
use serde_json::value::{RawValue, to_raw_value};

/// What a provider does in a way of its own. By default the body of a request is its id, and so is its
/// answer, at once; a batch is called after its first request and has ended when it is asked about.
pub trait Stub: Debug + Send + Sync + 'static {
    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        Ok(to_raw_value(&request.id).unwrap())
    }

    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        Ok(Created { batch_id: first(draft).to_owned(), progress: Progress::Running })
    }

    fn poll(&self, _: &str) -> Result<Progress, CallError> {
        Ok(Progress::Ended)
    }

    fn results(
        &self,
        _: &str,
        draft: &Draft<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        answer_with_ids(draft, sink);
        Ok(Collected::default())
    }

    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        Ok(to_raw_value(entry.id).unwrap())
    }

    fn answer(&self, response: Box<RawValue>) -> Answer {
        Answer::new(response)
    }

    fn account(&self) -> Option<String> {
        None
    }
}

/// Returns the first request of a batch.
pub fn first<'a>(draft: &Draft<'a>) -> &'a str {
    draft.entries().next().unwrap().id
}

/// Answers each request of a batch with its id.
pub fn answer_with_ids(draft: &Draft<'_>, sink: &mut Sink<'_>) {
    for entry in draft.entries() {
        let _ = sink(&entry.custom_id, Ok(Answer::new(to_raw_value(entry.id).unwrap())));
    }
}

/// The provider that a [`Stub`] makes.
#[derive(Debug, Default)]
pub struct Stubbed<S>(S);

/// Returns a provider of which a test keeps a handle.
pub fn stub<S: Stub>(stub: S) -> Arc<Stubbed<S>> {
    Arc::new(Stubbed(stub))
}

impl<S> Deref for Stubbed<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: Stub> Provider for Stubbed<S> {
    fn name(&self) -> &'static str {
        "stub"
    }

    fn endpoint(&self) -> &'static str {
        "here"
    }

    fn limits(&self) -> Limits {
        Limits { max_items: 10, max_bytes: 1 << 20, frame_bytes: 0, entry_bytes: 0 }
    }

    fn account(&self, _: &str) -> Option<String> {
        self.0.account()
    }

    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        self.0.encode(request)
    }

    fn create(&self, draft: &Draft<'_>, _: &str, _: &Call<'_>) -> Result<Created, CreateError> {
        self.0.create(draft)
    }

    fn poll(&self, batch_id: &str, _: &Call<'_>) -> Result<Progress, CallError> {
        self.0.poll(batch_id)
    }

    fn results(
        &self,
        batch_id: &str,
        draft: &Draft<'_>,
        _: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        self.0.results(batch_id, draft, sink)
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn ask(&self, entry: &Entry<'_>, _: &Call<'_>) -> Result<Box<RawValue>, CreateError> {
        self.0.ask(entry)
    }

    fn answer(&self, response: Box<RawValue>) -> Answer {
        self.0.answer(response)
    }
}
