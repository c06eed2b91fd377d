//! A template on its own: parsed, checked and compiled, but not yet tied to what it includes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crate::dialect::Dialect;
use crate::facts::{Facts, Include, Scope, Use};
use crate::front_matter::{self, FrontMatter};
use crate::generate::{self, Generated, Origins};
use crate::lex::{self, Chunk, Fault};
use crate::parse::{self, Parsed};
use crate::roles::Section;
use crate::straight::Program;
use crate::{Digest, Error, ErrorKind};

/// Bytes of a template's name.
const MAX_NAME: usize = 200;

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) name: Arc<str>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: Arc<str>,
    digest: OnceLock<Digest>,
    pub(crate) dialect: Arc<Dialect>,
    pub(crate) front_matter: FrontMatter,
    pub(crate) segments: Vec<Segment>,
    pub(crate) uses: Vec<Use>,
    pub(crate) includes: Vec<Include>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) compile_time: Duration,
    pub(crate) made_at: SystemTime,
}

/// A message, or the whole text where there are no role lines.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) section: Option<Section>,
    /// Where its role line is, or the text begins.
    pub(crate) offset: usize,
    /// What the segment says if it has no tags; it is then not rendered at all.
    pub(crate) constant: Option<Arc<str>>,
    /// What it does otherwise, if it is simple.
    pub(crate) program: Option<Program>,
    /// Made with the segment if it has no program, else when it is needed.
    translated: OnceLock<Result<Translated, Error>>,
}

/// A segment as `upon` has it.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) template: upon::Template<'static>,
    /// Where the parts of the template's source come from.
    pub(crate) origins: Origins,
}

impl Compiled {
    /// Compiles a text. It looks at nothing but the text.
    pub(crate) fn new(
        name: &str,
        path: Option<&Path>,
        text: &str,
        dialect: &Arc<Dialect>,
    ) -> Result<Self, Error> {
        check_name(name).map_err(|error| error.path(path))?;
        let (start, made_at) = (Instant::now(), SystemTime::now());
        let locate =
            |fault: Fault| fault.error.template(name).path(path).in_text(text, fault.offset);
        let front_matter = front_matter::parse(text).map_err(locate)?;
        let Parsed { segments, tokens, mut facts } =
            parse(text, &front_matter, dialect).map_err(locate)?;
        facts.insertions.sort_by_key(|(offset, _)| *offset);
        let segments = segments.into_iter().map(|segment| {
            let constant = generate::constant(text, &segment.chunks).map(Arc::from);
            let program = Program::new(text, &segment.chunks, &tokens, &facts.includes);
            let translated = OnceLock::new();
            if program.is_none() {
                let made = translate(text, &segment.chunks, &facts, dialect).map_err(locate)?;
                let _ = translated.set(Ok(made));
            }
            let parse::Segment { section, offset, .. } = segment;
            Ok(Segment { section, offset, constant, program, translated })
        });
        let compiled = Self {
            segments: segments.collect::<Result<_, Error>>()?,
            name: name.into(),
            path: path.map(Path::to_owned),
            text: text.into(),
            digest: OnceLock::new(),
            dialect: Arc::clone(dialect),
            front_matter,
            uses: facts.uses,
            includes: facts.includes,
            scopes: facts.scopes,
            compile_time: start.elapsed(),
            made_at,
        };
        compiled.check_declared()?;
        Ok(compiled)
    }

    /// Returns the digest of the text alone; hashed in one piece, which is several times faster.
    pub(crate) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of_text(&self.text))
    }

    /// Returns a segment as `upon` has it.
    pub(crate) fn translated(&self, index: usize) -> Result<&Translated, Error> {
        let make = || {
            let parsed = parse(&self.text, &self.front_matter, &self.dialect);
            let translated = parsed.and_then(|Parsed { segments, mut facts, .. }| {
                facts.insertions.sort_by_key(|(offset, _)| *offset);
                translate(&self.text, &segments[index].chunks, &facts, &self.dialect)
            });
            translated.map_err(|Fault { offset, error }| self.locate(error, offset))
        };
        self.segments[index].translated.get_or_init(make).as_ref().map_err(Error::clone)
    }

    /// Takes the text apart again, for questions that are asked rarely. Costs about half a compile.
    pub(crate) fn parsed(&self) -> Option<Parsed> {
        parse(&self.text, &self.front_matter, &self.dialect).ok()
    }

    /// Gives an error this template's name, and a place in it.
    pub(crate) fn locate(&self, error: Error, offset: usize) -> Error {
        error.template(&*self.name).path(self.path.as_deref()).in_text(&self.text, offset)
    }

    pub(crate) fn has_roles(&self) -> bool {
        self.segments.first().is_some_and(|segment| segment.section.is_some())
    }

    /// Checks the variables that the template itself uses against those it declares.
    fn check_declared(&self) -> Result<(), Error> {
        let Some(declared) = self.front_matter.variables() else { return Ok(()) };
        let names: HashSet<&str> = declared.iter().map(String::as_str).collect();
        let is_known = |used: &&Use| used.is_local || names.contains(used.root(&self.text));
        match self.uses.iter().find(|used| !is_known(used)) {
            None => Ok(()),
            Some(used) => {
                let error = undeclared(used.root(&self.text), declared);
                Err(self.locate(error, used.span.start))
            }
        }
    }
}

fn parse(text: &str, front_matter: &FrontMatter, dialect: &Dialect) -> Result<Parsed, Fault> {
    let mut lexed = lex::lex(text, front_matter.body, &front_matter.delimiters)?;
    if front_matter.is_tidy().unwrap_or(dialect.is_tidy) {
        crate::tidy::tidy(text, front_matter.body, &mut lexed);
    }
    parse::parse(text, lexed, dialect).map_err(|fault| {
        // A word that is none of ours and near none of them may be of another language.
        let is_foreign = !fault.error.available().is_empty() && fault.error.suggestion().is_none();
        if is_foreign && fault.error.help_text().is_none() {
            let raw = front_matter.delimiters.raw();
            fault.help(format!("if it is no tag but text, write {raw} around it"))
        } else {
            fault
        }
    })
}

/// Compiles a segment with `upon`. The insertions of the facts are in order.
fn translate(
    text: &str,
    chunks: &[Chunk],
    facts: &Facts,
    dialect: &Dialect,
) -> Result<Translated, Fault> {
    let generate = || generate::generate(text, chunks, &facts.insertions);
    let Generated { source, origins } = generate();
    let template = dialect.engine.compile(source).map_err(|error| {
        let (offset, reason) = crate::locate::compile_error(dialect, &generate(), &error);
        Fault::syntax(offset, reason)
    })?;
    Ok(Translated { template, origins })
}

/// An error about a variable that the front matter does not list.
pub(crate) fn undeclared(name: &str, declared: &[String]) -> Error {
    let declared = declared.iter().map(String::as_str);
    Error::unknown(ErrorKind::UnknownVariable, "variable", name, declared)
        .help("add it to 'variables' in the front matter, or correct the name")
}

fn check_name(name: &str) -> Result<(), Error> {
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 200 bytes"
    } else if name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
        "holds a quote, a back-slash or a control character"
    } else if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "does not stay in its folder"
    } else {
        return Ok(());
    };
    let message = format!("the template name {name:?} {fault}");
    Err(Error::new(ErrorKind::Name, message).named(name))
}
