use std::fmt;
use std::path::{Path, PathBuf};

use crate::position::Position;

/// Names shown in a message before the rest is only counted.
const MAX_SHOWN_NAMES: usize = 10;

/// What kind of fault an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A tag that is not closed, a block without its end, an expression that does not parse.
    Syntax,
    /// The block between `---` lines at the head of a template.
    FrontMatter,
    /// A role line at a place where none can be, or one that is almost one.
    Role,
    /// A variable that is neither declared nor in the data.
    UnknownVariable,
    /// An included template that is not there.
    UnknownInclude,
    /// A function or filter that does not exist.
    UnknownFunction,
    /// A function with too few or too many arguments, or with one that is written down and cannot be right.
    Arguments,
    /// Templates that include each other, or nest too deep.
    Cycle,
    /// A value of the wrong type for what the template does with it.
    Value,
    /// Data that cannot be given to a template.
    Data,
    /// There is no template of that name.
    NotFound,
    /// A name that a template cannot have.
    Name,
    /// A template that others include cannot be removed.
    InUse,
    /// A file or folder that cannot be read.
    Io,
    /// The store could not publish.
    Store,
    /// What is rendered is longer than the store allows.
    Output,
    /// A prompt that cannot be made to fit its budget of tokens.
    Budget,
    /// A warning: a variable that changes with each render stands in front of text that never does.
    Volatile,
    /// A warning: a variable that is declared and not used.
    Unused,
}

/// A fault in a template, in the data, or in what was asked of a store.
///
/// `{}` is one line: place, message, what to do. `{:#}` shows the line of the template below the message,
/// with a mark under the place.
///
/// ```
/// use prompt_templates::{Context, ErrorKind, Prompts};
///
/// let prompts = Prompts::builder().build()?;
/// let prompt = prompts.compile("greet", "Hello,\n{{ nmae }}!")?;
/// let error = prompt.render(Context::new().set("name", &"Ada")?).unwrap_err();
///
/// assert_eq!(error.kind(), ErrorKind::UnknownVariable);
/// assert_eq!((error.line(), error.column()), (Some(2), Some(4)));
/// assert_eq!(error.suggestion(), Some("name"));
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Box<Report>);

#[derive(Clone, Debug)]
struct Report {
    kind: ErrorKind,
    message: String,
    template: Option<String>,
    path: Option<PathBuf>,
    position: Option<Position>,
    /// The line of the template.
    snippet: Option<String>,
    name: Option<String>,
    available: Vec<String>,
    suggestion: Option<String>,
    help: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Report {
            kind,
            message: message.into(),
            template: None,
            path: None,
            position: None,
            snippet: None,
            name: None,
            available: Vec::new(),
            suggestion: None,
            help: None,
        }))
    }

    /// For "unknown thing 'name'": adds what there is, and what was probably meant.
    pub(crate) fn unknown<S: AsRef<str>>(
        kind: ErrorKind,
        thing: &str,
        name: &str,
        available: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut error = Self::new(kind, format!("unknown {thing} '{name}'"));
        error.0.available = available.into_iter().map(|name| name.as_ref().to_owned()).collect();
        // Of a path, the last part is the one that is missing.
        let missing = name.rsplit('.').next().unwrap_or(name);
        error.0.suggestion = crate::suggest::nearest(missing, &error.0.available);
        error.named(name)
    }

    pub(crate) fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Adds to the message.
    pub(crate) fn note(mut self, text: &str) -> Self {
        self.0.message.push_str(text);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    pub(crate) fn template(mut self, name: impl Into<String>) -> Self {
        self.0.template = Some(name.into());
        self
    }

    pub(crate) fn path(mut self, path: Option<&Path>) -> Self {
        self.0.path = path.map(Path::to_owned);
        self
    }

    pub(crate) fn at(mut self, position: Position) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Gives the error its place in a text, and the line that it is on.
    pub(crate) fn in_text(mut self, text: &str, offset: usize) -> Self {
        let position = Position::of(text, offset);
        self.0.snippet = text.lines().nth(position.line - 1).map(str::to_owned);
        self.at(position)
    }

    /// Returns what kind of fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without place and help.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the name of the template at fault, if one is. An included template is named itself.
    pub fn template_name(&self) -> Option<&str> {
        self.0.template.as_deref()
    }

    /// Returns the file that the template was loaded from, if it was.
    pub fn file(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the line, counted from 1, front matter included.
    pub fn line(&self) -> Option<usize> {
        self.0.position.map(|position| position.line)
    }

    /// Returns the column, counted from 1 in characters.
    pub fn column(&self) -> Option<usize> {
        self.0.position.map(|position| position.column)
    }

    /// Returns the line of the template, without its line break.
    pub fn snippet(&self) -> Option<&str> {
        self.0.snippet.as_deref()
    }

    /// Returns the name at fault: of the variable, function, template or key.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the names that would have been right at that place, as far as they are known.
    pub fn available(&self) -> &[String] {
        &self.0.available
    }

    /// Returns the available name that was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.0.suggestion.as_deref()
    }

    /// Returns what to do about it.
    pub fn help_text(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.as_ref().map(|path| path.to_string_lossy());
        let name = file.as_deref().or(self.template.as_deref());
        let place = self.position.map(|Position { line, column }| format!("{line}:{column}"));
        for part in [name, place.as_deref()].into_iter().flatten() {
            write!(f, "{}:", Shown(part))?;
        }
        if name.is_some() || place.is_some() {
            f.write_str(" ")?;
        }
        write!(f, "{}", Shown(&self.message))?;
        let is_long = f.alternate();
        if is_long && let (Some(position), Some(line)) = (self.position, &self.snippet) {
            crate::snippet::draw(f, position, line)?;
        }
        let separator = if is_long { "\n  = " } else { "; " };
        if let Some(name) = &self.suggestion {
            write!(f, "{separator}did you mean '{}'?", Shown(name))?;
        }
        if let Some((first, rest)) = self.available.split_first() {
            write!(f, "{separator}available: {}", Shown(first))?;
            let rest = rest.iter().take(MAX_SHOWN_NAMES - 1);
            rest.map(|name| Shown(name)).try_for_each(|name| write!(f, ", {name}"))?;
            if let Some(more @ 1..) = self.available.len().checked_sub(MAX_SHOWN_NAMES) {
                write!(f, " and {more} more")?;
            }
        }
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "{separator}{help}"))
    }
}

/// A text of a template or of data, which must not reach a terminal with its control characters.
struct Shown<'t>(&'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(char::is_control) {
            f.write_str(&rest[..at])?;
            f.write_str("\u{fffd}")?;
            rest = rest[at..].trim_start_matches(char::is_control);
        }
        f.write_str(rest)
    }
}

/// Everything that was wrong with a change that is made whole or not at all.
///
/// `{}` is one line for each error, `{:#}` shows the lines at fault.
#[derive(Clone, Debug)]
pub struct LoadError {
    errors: Vec<Error>,
}

impl LoadError {
    pub(crate) fn new(errors: Vec<Error>) -> Self {
        Self { errors }
    }

    /// Returns the errors, ordered by file; at least one.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Returns the errors, ordered by file; at least one.
    pub fn into_errors(self) -> Vec<Error> {
        self.errors
    }
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self { errors: vec![error] }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            fmt::Display::fmt(error, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
