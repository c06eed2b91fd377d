//! Where a provider is, and that a key may be sent there.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ureq::http::Uri;

use crate::error::Error;

/// A base URL that a key may be sent to: https, or http to this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseUrl(String);

impl BaseUrl {
    pub(crate) fn parse(text: &str) -> Result<BaseUrl, Error> {
        // A URL with user information carries a secret, so it is not shown.
        let hidden = |why: &str| Error::Setting { problem: format!("the base URL {why}") };
        let refuse = |why: &str| Error::Setting { problem: format!("the base URL `{text}` {why}") };
        if text.contains('@') {
            return Err(hidden("must not hold user information; the key is a setting of its own"));
        }
        if text.contains(['?', '#']) {
            return Err(hidden("must end with its path, without `?` or `#`"));
        }
        let uri: Uri =
            text.parse().map_err(|error| refuse(&format!("cannot be read ({error})")))?;
        let host = uri.host().unwrap_or_default();
        match uri.scheme_str() {
            _ if host.is_empty() => Err(refuse("names no host; write https://HOST")),
            Some("https") => Ok(()),
            Some("http") if is_loopback(host) => Ok(()),
            Some("http") => {
                Err(refuse("is not encrypted; use https (http is for this machine alone)"))
            }
            _ => Err(refuse("must start with https://")),
        }?;
        Ok(BaseUrl(text.trim_end_matches('/').to_owned()))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.starts_with("https:")
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_and_loopback_are_taken() {
        for (text, kept) in [
            ("https://api.example.com", "https://api.example.com"),
            ("https://api.example.com/", "https://api.example.com"),
            ("https://example.com/proxy/", "https://example.com/proxy"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.9.9.9", "http://127.9.9.9"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://localhost:1", "http://localhost:1"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().as_str(), kept);
        }
    }

    #[test]
    fn anything_a_key_could_leak_to_is_refused() {
        for text in [
            "http://api.example.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://0.0.0.0",
            "http://10.0.0.1",
            "http://127.0.0.1@example.com",
            "https://user:hunter2@example.com",
            "https://example.com?x=1",
            "https://example.com#x",
            "ftp://127.0.0.1",
            "file:///etc/passwd",
            "api.example.com",
            "/v1",
            "https://",
            "",
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
