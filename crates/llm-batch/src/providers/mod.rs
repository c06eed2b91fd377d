//! The providers, one file each.

mod anthropic;
mod anthropic_wire;
mod offline;
mod shared;

pub use anthropic::{Anthropic, AnthropicBuilder, AuthStyle};
pub use offline::Offline;
