//! Servers of the shape of `OpenAI`.

const BASE_URL: &str = "https://api.openai.com";

/// What tells servers of this shape apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Where it is, without `/v1`. Empty where every account has its own.
    pub base_url: &'static str,
    /// The header of the key; as a bearer token in `authorization`, else as it is.
    pub key_header: &'static str,
    /// The name of the longest answer in a body.
    pub max_tokens: &'static str,
    /// The most bytes of a file.
    pub max_bytes: u64,
    /// Whether it takes batches of this shape; without, the lane `sync` alone is there.
    pub has_batches: bool,
    /// Whether a create may carry metadata.
    pub has_metadata: bool,
    /// Whether a create may carry an `idempotency_key`.
    pub has_idempotency_key: bool,
}

impl Profile {
    /// OpenAI itself.
    pub const OPENAI: Profile = Profile {
        base_url: BASE_URL,
        key_header: "authorization",
        max_tokens: "max_completion_tokens",
        max_bytes: 200_000_000,
        has_batches: true,
        has_metadata: true,
        has_idempotency_key: false,
    };
    /// Azure; the base URL is that of the account, with `/openai` at its end.
    pub const AZURE: Profile = Profile { base_url: "", key_header: "api-key", ..Profile::OPENAI };
    /// Groq.
    pub const GROQ: Profile = Profile {
        base_url: "https://api.groq.com/openai",
        max_bytes: 100_000_000,
        ..Profile::OPENAI
    };
    /// Together, in the lane `sync` alone: its batches are of another shape, and their files have to
    /// be sent to another host than its own.
    pub const TOGETHER: Profile = Profile {
        base_url: "https://api.together.xyz",
        max_tokens: "max_tokens",
        has_batches: false,
        has_metadata: false,
        ..Profile::OPENAI
    };
    /// OGX, on a machine of one's own.
    pub const OGX: Profile = Profile {
        base_url: "",
        max_tokens: "max_tokens",
        has_idempotency_key: true,
        ..Profile::OPENAI
    };
}

impl Profile {
    /// Returns the profile of the server at a base URL, by its host; that of OpenAI where the host
    /// is none of those known here.
    pub fn of(base_url: &str) -> Profile {
        let authority = base_url.split("://").nth(1).unwrap_or(base_url);
        let host = authority.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let is_at = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        match () {
            () if is_at("azure.com") => Profile::AZURE,
            () if is_at("groq.com") => Profile::GROQ,
            () if is_at("together.xyz") || is_at("together.ai") => Profile::TOGETHER,
            () => Profile::OPENAI,
        }
    }
}
