//! How long a server asks to wait, in all the ways in which servers say it.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use ureq::http::header::HeaderMap;

/// What is waited at most before asking again, whatever the server says: asking once an hour does
/// no harm, and waiting for a year on a misspelled number does.
const LONGEST: Duration = Duration::from_hours(1);

/// Limits whose end is told apart: what is left of it, and when it begins anew.
const WINDOWS: [(&str, &str); 5] = [
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
];

/// Returns how long the server asks to wait: `retry-after-ms` and `x-ms-retry-after-ms` in
/// milliseconds, `retry-after` in seconds or as a date, or the end of the window of a limit that
/// is used up. What makes no sense is left out.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let until = |then: Timestamp| {
        let now = text("date").and_then(date).unwrap_or_else(Timestamp::now);
        // A date that has passed asks for no wait.
        Duration::try_from(then.duration_since(now)).unwrap_or_default()
    };
    let milliseconds = |name: &str| seconds(text(name)?, 1000.0);
    let moment =
        |text: &str| seconds(text, 1.0).or_else(|| span(text)).or_else(|| date(text).map(until));
    milliseconds("retry-after-ms")
        .or_else(|| milliseconds("x-ms-retry-after-ms"))
        .or_else(|| moment(text("retry-after")?))
        .or_else(|| {
            let used_up = WINDOWS.iter().filter(|(remaining, _)| text(remaining) == Some("0"));
            used_up.filter_map(|(_, reset)| moment(text(reset)?)).max()
        })
        .map(|wait| wait.min(LONGEST))
}

fn seconds(text: &str, units: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / units).ok()
}

/// Reads a date as HTTP writes it, or as JSON does.
fn date(text: &str) -> Option<Timestamp> {
    let http = rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text);
    http.or_else(|_| text.parse()).ok()
}

/// Reads a span such as `1s`, `6m0s`, `20ms` or `1h2m3.5s`.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let number: f64 = rest[..unit_at].parse().ok()?;
        rest = &rest[unit_at..];
        let (name, scale) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)]
            .into_iter()
            .find(|(name, _)| rest.starts_with(name))?;
        rest = &rest[name.len()..];
        total = total.checked_add(Duration::try_from_secs_f64(number * scale).ok()?)?;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::header::{HeaderName, HeaderValue};

    fn with(headers: &[(&'static str, &'static str)]) -> Option<Duration> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        retry_after(&pairs.collect())
    }

    #[test]
    fn every_spelling_is_read() {
        let date = ("date", "Sun, 29 Nov 2026 10:00:00 GMT");
        for (headers, wait) in [
            (&[("retry-after", "7")][..], Duration::from_secs(7)),
            (&[("retry-after", " 1.5 ")], Duration::from_millis(1500)),
            (&[("retry-after", "0")], Duration::ZERO),
            (&[("retry-after", "250ms")], Duration::from_millis(250)),
            (&[("retry-after-ms", "250")], Duration::from_millis(250)),
            (&[("x-ms-retry-after-ms", "250.5")], Duration::from_micros(250_500)),
            (&[("retry-after-ms", "10"), ("retry-after", "9")], Duration::from_millis(10)),
            (&[("retry-after-ms", "soon"), ("retry-after", "9")], Duration::from_secs(9)),
            (&[date, ("retry-after", "Sun, 29 Nov 2026 10:01:30 GMT")], Duration::from_secs(90)),
            (&[date, ("retry-after", "Mon, 29 Nov 2026 10:01:30 GMT")], Duration::from_secs(90)),
            (&[date, ("retry-after", "Sun, 29 Nov 2026 09:00:00 GMT")], Duration::ZERO),
            (&[date, ("retry-after", "2026-11-29T10:00:05Z")], Duration::from_secs(5)),
            (
                &[
                    date,
                    ("anthropic-ratelimit-requests-remaining", "0"),
                    ("anthropic-ratelimit-requests-reset", "2026-11-29T10:00:20Z"),
                    ("anthropic-ratelimit-tokens-remaining", "5"),
                    ("anthropic-ratelimit-tokens-reset", "2026-11-29T10:00:50Z"),
                ],
                Duration::from_secs(20),
            ),
            (
                &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")],
                Duration::from_mins(6),
            ),
            (&[("retry-after", "999999999")], LONGEST),
            (&[date, ("retry-after", "Sun, 29 Nov 2099 10:00:00 GMT")], LONGEST),
        ] {
            assert_eq!(with(headers), Some(wait), "{headers:?}");
        }
        // Without a date of the server's the clock here has to do.
        assert_eq!(with(&[("retry-after", "Sun, 29 Nov 2099 10:00:00 GMT")]), Some(LONGEST));
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for nonsense in ["-1", "soon", "NaN", "inf", "1e300", "", "s", "1", "1x", "-1s", "Sun, 99"]
        {
            let expected = (nonsense == "1").then_some(Duration::from_secs(1));
            assert_eq!(with(&[("retry-after", nonsense)]), expected, "{nonsense}");
        }
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("x-ratelimit-reset-tokens", "6m0s")]), None, "nothing is used up");
    }
}
