//! The providers, one file each.

mod anthropic;
mod anthropic_wire;
mod offline;
mod openai;
mod openai_wire;
mod shared;

pub use anthropic::{Anthropic, AnthropicBuilder, AuthStyle};
pub use offline::Offline;
pub use openai::{OpenAi, OpenAiBuilder, Profile};
