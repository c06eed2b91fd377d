//! The providers, one file each.

mod anthropic;
mod anthropic_wire;
mod offline;
mod openai;
mod openai_wire;
mod profile;
mod shared;

pub use anthropic::{Anthropic, AnthropicBuilder, AuthStyle};
pub use offline::Offline;
pub use openai::{OpenAi, OpenAiBuilder};
pub use profile::Profile;

/// What the gates of speed of this workspace measure; no part of the interface.
#[doc(hidden)]
pub mod measured {
    use super::anthropic_wire::ResultLine;
    use super::shared::parsed;

    /// Parses the envelope of a result line, and returns the length of its body.
    pub fn envelope(line: &[u8]) -> Option<usize> {
        parsed::<ResultLine<'_>>(line)?.body_len()
    }

    /// Makes an answer of a result line, and returns the length of its text.
    pub fn answer(line: &[u8]) -> Option<usize> {
        let line: ResultLine<'_> = parsed(line)?;
        Some(line.outcome().ok()?.text?.len())
    }
}
