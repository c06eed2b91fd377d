//! From the name of a provider and its settings to the provider itself.

use std::path::Path;
use std::sync::Arc;

use llm_batch::Provider;
use llm_batch::providers::{Anthropic, Offline};

use crate::exit::{Stop, chain};
use crate::input::existing_folder;
use crate::plan::ProviderName;

/// Where a provider is and what it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) base_url: Option<&'a str>,
    pub(crate) answers: Option<&'a Path>,
}

/// Environment variable of the key.
const KEY: &str = "ANTHROPIC_API_KEY";

/// Makes a provider; nothing is sent yet.
///
/// # Errors
///
/// A setting is missing, is none of this provider's, or cannot be used. The key is never named.
pub(crate) fn open(name: ProviderName, place: Place<'_>) -> Result<Arc<dyn Provider>, Stop> {
    match name {
        ProviderName::Offline => {
            let answers = place.answers.ok_or_else(|| {
                Stop::refused("the provider \"offline\" needs a folder of recorded answers")
                    .help("name it with --answers, or with `answers` in the plan")
            })?;
            existing_folder(answers, "the answers folder")?;
            let offline = Offline::open(answers).map_err(|error| Stop::refused(chain(&error)))?;
            Ok(Arc::new(offline))
        }
        ProviderName::Anthropic => {
            let key = std::env::var(KEY).map_err(|error| match error {
                std::env::VarError::NotPresent => Stop::refused(format_args!("{KEY} is not set"))
                    .help("set it to the key of your account; it is read from there only"),
                std::env::VarError::NotUnicode(_) => {
                    Stop::refused(format_args!("{KEY} is not text"))
                }
            })?;
            let mut anthropic = Anthropic::builder(key);
            if let Some(base_url) = place.base_url {
                anthropic = anthropic.base_url(base_url);
            }
            let anthropic = anthropic.build().map_err(|error| Stop::refused(chain(&error)))?;
            Ok(Arc::new(anthropic))
        }
    }
}
