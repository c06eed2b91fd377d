//! From the name of a provider and its settings to the provider itself.

use std::env::VarError;
use std::path::Path;
use std::sync::Arc;

use llm_batch::providers::{Anthropic, Offline, OpenAi, Profile};
use llm_batch::{Error, Prices, Provider};

use crate::exit::{Stop, chain};
use crate::input::{Input, existing_folder};
use crate::plan::ProviderName;

/// Where a provider is and what it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) base_url: Option<&'a str>,
    pub(crate) answers: Option<&'a Path>,
}

/// Makes a provider; nothing is sent yet.
///
/// # Errors
///
/// A setting is missing, is none of this provider's, or cannot be used. The key is never named.
pub(crate) fn open(name: ProviderName, place: Place<'_>) -> Result<Arc<dyn Provider>, Stop> {
    let refused = |error: Error| Stop::refused(chain(&error));
    match name {
        ProviderName::Offline => {
            let answers = place.answers.ok_or_else(|| {
                Stop::refused("the provider \"offline\" needs a folder of recorded answers")
                    .help("name it with --answers")
            })?;
            existing_folder(answers, "the answers folder")?;
            Ok(Arc::new(Offline::open(answers).map_err(refused)?))
        }
        ProviderName::Anthropic => {
            let mut anthropic = Anthropic::builder(key("ANTHROPIC_API_KEY")?);
            if let Some(base_url) = place.base_url {
                anthropic = anthropic.base_url(base_url);
            }
            Ok(Arc::new(anthropic.build().map_err(refused)?))
        }
        ProviderName::Openai => {
            let mut openai = OpenAi::builder(key("OPENAI_API_KEY")?);
            if let Some(base_url) = place.base_url {
                openai = openai.profile(Profile::of(base_url)).base_url(base_url);
            }
            Ok(Arc::new(openai.build().map_err(refused)?))
        }
    }
}

/// Reads a table of prices.
///
/// # Errors
///
/// It cannot be read, or is none.
pub(crate) fn prices(file: &Path) -> Result<Prices, Stop> {
    let text = Input::File(file.to_owned()).read_text()?;
    let prices = Prices::parse(&text);
    prices.map_err(|error| Stop::refused(format_args!("{}: {}", file.display(), chain(&error))))
}

/// Reads a key from the environment, its only place.
fn key(variable: &str) -> Result<String, Stop> {
    std::env::var(variable).map_err(|error| match error {
        VarError::NotPresent => Stop::refused(format_args!("{variable} is not set"))
            .help("set it to the key of your account; it is read from there only"),
        VarError::NotUnicode(_) => Stop::refused(format_args!("{variable} is not text")),
    })
}
