//! What tokens cost.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::answer::Usage;
use crate::error::Error;
use crate::lane::Lane;
use crate::table::Extent;

const BUILT_IN: &str = include_str!("prices.json");
const MILLION: f64 = 1_000_000.0;
/// How many bytes of a body are taken for one token before it is known better: fewer than in plain
/// text, so that an estimate is rather too high.
const BYTES_PER_TOKEN: u64 = 3;

/// Prices of models, as data.
///
/// The built-in table has a date and is no promise; put another one in its place with
/// [`Builder::prices`](crate::Builder::prices).
///
/// ```
/// use llm_batch::{Lane, Prices, Usage};
///
/// let prices = Prices::parse(
///     r#"{"as_of": "2026-01-01", "models": {"m": {"input": 2, "output": 10}}}"#,
/// )?;
/// let usage = Usage { input_tokens: 1_000_000, output_tokens: 100_000, ..Usage::default() };
/// assert_eq!(prices.cost("m", Lane::Sync, usage), Some(3.0));
/// assert_eq!(prices.cost("m-2026-05-01", Lane::Batch, usage), Some(1.5));
/// assert_eq!(prices.cost("another", Lane::Batch, usage), None);
/// # Ok::<(), llm_batch::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
pub struct Prices {
    as_of: String,
    /// What is paid in a batch of what is paid one by one.
    #[serde(default = "half")]
    batch_share: f64,
    models: BTreeMap<String, Price>,
}

/// Dollars for a million tokens each.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Price {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
}

fn half() -> f64 {
    0.5
}

impl Default for Prices {
    /// Returns the built-in table.
    fn default() -> Prices {
        Prices::parse(BUILT_IN).expect("a test reads the table that is built in")
    }
}

impl Prices {
    /// Reads a table: `as_of`, `batch_share` (0.5 where it is left out) and `models`, each with
    /// dollars for a million tokens of `input`, `output`, and where they differ from input,
    /// `cache_read`, `cache_write` and `cache_write_1h`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when the text is no such table, or a price is negative.
    pub fn parse(json: &str) -> Result<Prices, Error> {
        let unusable =
            |why: String| Error::Setting { problem: format!("the table of prices {why}") };
        let prices: Prices = serde_json::from_str(json)
            .map_err(|error| unusable(format!("cannot be read: {error}")))?;
        let numbers = |price: &Price| {
            let cached = [price.cache_read, price.cache_write, price.cache_write_1h];
            [price.input, price.output].into_iter().chain(cached.into_iter().flatten())
        };
        let mut all = prices.models.values().flat_map(numbers).chain([prices.batch_share]);
        match all.find(|number| !number.is_finite() || *number < 0.0) {
            Some(odd) => Err(unusable(format!("holds the price {odd}"))),
            None => Ok(prices),
        }
    }

    /// Returns the day from which the prices are.
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// Returns what tokens of a model cost, in dollars; `None` where its price is not known.
    ///
    /// A model is known by its name, or by its name and a date behind it.
    pub fn cost(&self, model: &str, lane: Lane, usage: Usage) -> Option<f64> {
        let price = self.price(model)?;
        let write_1h = usage.cache_write_1h_tokens.min(usage.cache_write_tokens);
        let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
        let parts = [
            (usage.input_tokens.saturating_sub(cached), price.input),
            (usage.cache_read_tokens, price.cache_read.unwrap_or(price.input)),
            (usage.cache_write_tokens - write_1h, price.cache_write.unwrap_or(price.input)),
            (write_1h, price.cache_write_1h.or(price.cache_write).unwrap_or(price.input)),
            (usage.output_tokens, price.output),
        ];
        let dollars: f64 = parts.iter().map(|&(tokens, price)| float(tokens) * price).sum();
        Some(dollars / MILLION * self.share(lane))
    }

    /// Returns what a request may cost: its body read in full at the price of input, or written into
    /// a cache where that is dearer and asked for, and the longest answer that it asks for.
    pub(crate) fn estimate(&self, model: &str, lane: Lane, extent: Extent) -> Option<f64> {
        let price = self.price(model)?;
        let writes = [price.cache_write, price.cache_write_1h].into_iter().flatten();
        let dearest = writes.filter(|_| extent.writes_cache).fold(price.input, f64::max);
        let read = float(extent.body_bytes.div_ceil(BYTES_PER_TOKEN)) * dearest;
        let written = float(extent.answer_tokens.unwrap_or(0)) * price.output;
        Some((read + written) / MILLION * self.share(lane))
    }

    fn share(&self, lane: Lane) -> f64 {
        match lane {
            Lane::Batch => self.batch_share,
            Lane::Sync => 1.0,
        }
    }

    fn price(&self, model: &str) -> Option<&Price> {
        self.models.get(model).or_else(|| self.models.get(undated(model)?))
    }
}

/// Returns the name of a model without the date or `latest` at its end.
fn undated(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    // `-20260101` or `-2026-01-01`.
    let digits =
        |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    let (name, last) = model.rsplit_once('-')?;
    if digits(last, 8) {
        return Some(name);
    }
    let (name, month) = name.rsplit_once('-')?;
    let (name, year) = name.rsplit_once('-')?;
    (digits(last, 2) && digits(month, 2) && digits(year, 4)).then_some(name)
}

#[expect(clippy::cast_precision_loss, reason = "a count of tokens that large costs too much")]
fn float(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_can_be_read_and_has_a_date() {
        let prices = Prices::default();
        assert!(prices.as_of().parse::<jiff::civil::Date>().is_ok());
        assert!(prices.models.len() > 10);
    }

    #[test]
    fn names_with_a_date_are_known_and_others_are_not_guessed() {
        let prices = Prices::default();
        let usage = Usage { input_tokens: 1, ..Usage::default() };
        let is_known = |model| prices.cost(model, Lane::Sync, usage).is_some();
        for model in ["claude-haiku-4-5", "claude-haiku-4-5-20251001", "gpt-4o-2024-08-06"] {
            assert!(is_known(model), "{model}");
        }
        for model in ["claude-haiku", "gpt-5.9", "gpt-5-pro", "claude-opus-5-5", "", "-20260101"] {
            assert!(!is_known(model), "{model}");
        }
    }

    #[test]
    fn cached_tokens_have_prices_of_their_own() {
        let prices = Prices::default();
        let usage = Usage {
            input_tokens: 4_000_000,
            output_tokens: 1_000_000,
            cache_read_tokens: 1_000_000,
            cache_write_tokens: 2_000_000,
            cache_write_1h_tokens: 1_000_000,
        };
        // Input 1 + read 0.1 + written 1.25 + written for an hour 2 + output 5.
        let cost = prices.cost("claude-haiku-4-5", Lane::Sync, usage).unwrap();
        assert!((cost - 9.35).abs() < 1e-9, "{cost}");
        let cost = prices.cost("claude-haiku-4-5", Lane::Batch, usage).unwrap();
        assert!((cost - 4.675).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        for json in ["", "{}", r#"{"as_of":"x","models":{"m":{"input":-1,"output":1}}}"#] {
            assert!(Prices::parse(json).is_err(), "{json}");
        }
    }
}
