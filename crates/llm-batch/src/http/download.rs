//! Downloads that go on where they broke off.

use std::io::{self, Read};

use ureq::BodyReader;
use ureq::http::StatusCode;
use ureq::http::header::{HeaderMap, HeaderValue};

use super::{Http, reply};
use crate::provider::{Call, CallError};
use crate::stop::Hooked;

/// How often a download goes on where it broke off, before it begins anew after a wait.
const RESUMES: u32 = 100;

impl Http {
    /// Opens a download of any length.
    pub(crate) fn download<'c>(
        &'c self,
        path: String,
        call: &'c Call<'c>,
    ) -> Result<Download<'c>, CallError> {
        let (response, hooked) = self.run(self.request("GET", &path), call.time_left(), call)?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(&reply(response, 0, |text| self.scrub(text))));
        }
        let tag = strong_tag(response.headers());
        let body = response.into_body().into_reader();
        Ok(Download {
            http: self,
            path,
            call,
            body,
            at: 0,
            resumed_at: None,
            resumes: 0,
            tag,
            hooked,
        })
    }
}

/// The body of an answer, as it comes. One that breaks off goes on where it was, if the server
/// gives it a strong validator and keeps to it: neither provider promises ranges, and HTTP says
/// when they are safe.
pub(crate) struct Download<'c> {
    http: &'c Http,
    path: String,
    call: &'c Call<'c>,
    body: BodyReader<'static>,
    /// How much was read.
    at: u64,
    /// Where it last went on, which it has to get past before it does so again, and how often it did.
    resumed_at: Option<u64>,
    resumes: u32,
    tag: Option<HeaderValue>,
    hooked: Hooked,
}

impl Read for Download<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.body.read(buffer) {
                Ok(read) => {
                    self.at += read as u64;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !self.go_on() => return Err(error),
                Err(_) => {}
            }
        }
    }
}

impl Download<'_> {
    /// Asks for the rest; tells whether it comes.
    fn go_on(&mut self) -> bool {
        let Some(tag) = &self.tag else { return false };
        let is_stuck = self.at == 0 || self.resumed_at >= Some(self.at) || self.resumes >= RESUMES;
        if is_stuck || self.call.is_stopped() {
            return false;
        }
        self.resumed_at = Some(self.at);
        self.resumes += 1;
        let request = self
            .http
            .request("GET", &self.path)
            .header("range", format!("bytes={}-", self.at))
            .header("if-range", tag);
        let opened = self.http.run(request, self.call.time_left(), self.call);
        let Ok((response, hooked)) = opened else { return false };
        let begins = format!("bytes {}-", self.at);
        let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
        let is_the_rest = response.status() == StatusCode::PARTIAL_CONTENT
            && range.is_some_and(|range| range.starts_with(&begins))
            && strong_tag(response.headers()).is_some_and(|other| other == *tag);
        if is_the_rest {
            self.body = response.into_body().into_reader();
            self.hooked = hooked;
        }
        is_the_rest
    }
}

/// Returns what tells one content of an address from any other, to the byte.
fn strong_tag(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get("etag")?;
    (tag.as_bytes().starts_with(b"\"") && tag.len() > 2).then(|| tag.clone())
}
