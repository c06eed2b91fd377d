//! Prompts compiled once and rendered strictly.
//!
//! A prompt is a program for a model: a variable that vanishes silently, a value that is taken for
//! an instruction, or a stale version costs money and trust. This crate compiles prompts once, renders
//! them from any `serde` data, and turns every such accident into an error with line and column.
//!
//! ```
//! use prompt_templates::{Context, Prompts};
//!
//! let prompts = Prompts::builder().build()?;
//! let review = prompts.compile(
//!     "review",
//!     "[[system]]\nYou review {{ language }}.\n\n[[user]]\nAnswer as {\"ok\": true}.\n{{ diff | fence: \"diff\" }}",
//! )?;
//! let data = serde_json::json!({"language": "Rust", "diff": "-a\n+b"});
//! let messages = review.messages(&Context::from_serialize(&data)?)?;
//!
//! assert_eq!(messages[0].content, "You review Rust.");
//! assert_eq!(messages[1].content, "Answer as {\"ok\": true}.\n```diff\n-a\n+b\n```");
//! # Ok::<(), prompt_templates::Error>(())
//! ```
//!
//! # Concepts
//!
//! * [`Prompts`] is the store: templates of a folder, and templates compiled by call. [`Prompt`] is one
//!   compiled version with everything it includes; it never changes. [`Context`] is the data.
//! * **Tags**: `{{ path.to.value }}`, `{% if x %}..{% else if y %}..{% else %}..{% endif %}`,
//!   `{% for x in list %}..{% endfor %}`, `{% for key, value in map %}`, `{% with x as y %}..{% endwith %}`,
//!   `{% include "name" %}`, `{# comment #}`; `{{-` and `-}}` take the white space beside a tag away.
//!   In a loop there are `loop.index` (from 0), `loop.first` and `loop.last`.
//! * **Text** without `{{`, `{%` and `{#` needs no escaping, JSON and its closing braces included.
//!   `{% raw %}..{% endraw %}` keeps everything. A template can have delimiters of its own:
//!   `delimiters: ["<<", ">>", "<%", "%>", "<#", "#>"]`, of expressions, blocks and comments.
//! * **Strict**: a variable that is not in the data is an error, also in `if`, and so is printing one that
//!   is null. One that may be absent or null is written `?.name`. A template that lists `variables` in its
//!   front matter may use no others, which is checked when it is compiled. Unknown functions and includes
//!   never compile.
//! * **Messages**: a line `[[system]]`, `[[user]]`, `[[assistant]]` of the source begins a message;
//!   `[[history]]` is replaced by the messages of the variable `history`, a list of `{role, content}` of
//!   `user` and `assistant`. Blank lines at the start of a message and white space at its end, as far as
//!   they are the template's own, are no part of it. Values are never looked at, so none of them can begin
//!   a message.
//! * **Front matter**: `key: value` lines, or one JSON object, between two `---` lines at the head of a
//!   text. These keys mean something: `variables`, `delimiters`, `tidy_blocks: true` (a block tag alone on
//!   its line takes the line away), `volatile` (for [`Prompt::warnings`]) and `drop_first` (for
//!   [`Prompt::fit`]).
//! * **Identity**: [`Prompt::digest`] is that of a text and all it includes; [`Prompt::stable_prefix`] is
//!   what every render begins with, for the cache of a provider.
//! * **Coming from Go**: [`migrate`] rewrites `text/template`, and lists what is left to do.
//!
//! | call | or | gives |
//! |---|---|---|
//! | `eq(a, b)`, `ne`, `lt`, `le`, `gt`, `ge` | `a \| eq: b` | comparisons of numbers and of texts |
//! | `and(a, b)`, `or(a, b)` | `a \| and: b` | truth as `if` has it; `not` is a keyword: `{% if not x %}` |
//! | `len(x)` | `x \| len` | characters, items or entries |
//! | `contains(x, y)` | `x \| contains: y` | whether a list, map or text holds it |
//! | `default(?.x, y)` | `?.x \| default: y` | `y` if `x` is absent |
//! | `json(x)` | `x \| json` | compact JSON |
//! | `join(list, ", ")` | `list \| join: ", "` | the items as one text |
//! | `indent(x, 2)` | `x \| indent: 2` | spaces before all lines but the first, 4 if left out |
//! | `quote(x)` | `x \| quote` | a Markdown quotation that no line of the text is outside of |
//! | `truncate_tokens(x, 500)` | `x \| truncate_tokens: 500` | whole lines up to an estimate, and how many are gone |
//! | `fence(x, "rust")` | `x \| fence: "rust"` | a code fence that nothing in the text can close |
//! | `xml(x, "doc")` | `x \| xml: "doc"` | the text between tags that nothing in it can close |
//!
//! More functions are added with [`Builder::function`]. To `indent`, `quote`, `truncate_tokens` and
//! [`Prompt::fit`] a line ends in a line feed, a carriage return, both, or whatever else ends one in Unicode:
//! vertical tab, form feed, U+0085, U+2028, U+2029. `quote` writes a line feed for each of them. An argument
//! that is written down and cannot be right, as in `x | indent: -1`, does not compile.
//!
//! # Limits
//!
//! * Nothing is escaped for HTML, and no function of this crate reaches the file system, the clock or the
//!   network.
//! * There are no arithmetic, no macros and no inheritance.
//! * A file has at most 16 MiB. What a template includes comes to at most 10,000 includes, 60 deep.
//! * Data nests up to 128 deep. Keys of maps are text. Floats are those of 64 bits; integers have up to 128,
//!   those of a template 64. [`Context::from_json`] keeps them; `serde_json::Value` makes floats of more
//!   than 64.
//! * What is rendered has at most 64 MiB, or what [`Builder::max_output_bytes`] says; what `indent`, `join`,
//!   `json`, `quote`, `fence` or `xml` gives has at most 64 MiB. Functions of a store, and lists and maps that
//!   a template writes down, have no bound, and no time has: loops in loops take as long as they take.
//! * What is included inside `{% with x as y %}` cannot see `y`, and what is included in a loop over `x` may
//!   not read `x?.member`; both are told when they are compiled. `{% include "name" with {"y": y} %}` can.
//! * Blocks nest up to 100 deep, each `else if` counted as one; an expression has up to 64 filters.
//! * Tokens are estimated, not counted; see [`estimate_tokens`].
//! * A fence keeps a text apart; it does not keep a model from following what the text says.
//!
//! # Performance
//!
//! A text is compiled once. A lookup is one load of a shared pointer and a search in a map; a [`Prompt`]
//! that is kept needs neither. Renders take no lock and count in shards. A text without tags is shared or
//! copied. Messages of text, paths, conditions, loops, includes and functions of this crate are run as they
//! are; those with functions of a store, with literals of lists, maps, floats and negative numbers, with a
//! `for` or `with` over a call, or with an `include` that gives variables are compiled and rendered by
//! [`upon`](https://docs.rs/upon), which also says what is wrong where data does not fit. A change copies a
//! small part of the map of names, once for all changes that come at the same time. Figures beside `upon`,
//! minijinja and handlebars are in `docs/perf.md` of the repository.
//!
//! # Features
//!
//! * `watch`: the system tells [`Prompts::watch`] which files have changed; without it, all are asked for
//!   their time and length.

#![forbid(unsafe_code)]

mod builder;
mod store;

mod content;
mod context;
mod digest;
mod prompt;
mod reload;
mod render;
mod roles;
mod run;
mod shape;

mod fit;
mod lint;
mod prefix;
mod tokens;

mod folder;
mod handle;
mod load;
mod publish;
mod set;
mod sieve;
mod sighting;
mod stats;
mod table;
mod watch;

mod compiled;
mod dialect;
mod linked;

mod delimiters;
mod expression;
mod facts;
mod front_matter;
mod generate;
mod lex;
mod parse;
mod straight;
mod tidy;

mod functions;
mod integer;
mod json;
mod output;
mod to_value;
mod value;

mod migrate;

mod error;
mod locate;
mod position;
mod reason;
mod snippet;
mod suggest;

pub use builder::Builder;
pub use content::Content;
pub use context::Context;
pub use digest::Digest;
pub use error::{Error, ErrorKind, LoadError};
pub use fit::{Dropped, Fitted, Unit};
pub use front_matter::Meta;
pub use migrate::{MigratedTemplate, Migration, MigrationNote, migrate};
pub use prefix::StablePrefix;
pub use prompt::Prompt;
pub use reload::{Reload, check_dir};
pub use roles::{Message, Role};
pub use shape::{AnthropicMessages, OpenAiMessages};
pub use stats::{Histogram, Stats, TemplateStats};
pub use store::Prompts;
pub use tokens::estimate_tokens;
pub use watch::Watch;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
