//! A template together with everything it includes: what a prompt renders from.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use crate::compiled::{Compiled, undeclared};
use crate::digest::Hasher;
use crate::facts::{Include, Use};
use crate::set::Draft;
use crate::stats::Counters;
use crate::{Digest, Error, ErrorKind, TemplateStats};

/// Includes inside includes.
const MAX_DEPTH: usize = 60;

/// Includes of a template, with those in what it includes, each as often as it stands there.
const MAX_INCLUDES: usize = 10_000;

/// A template and the versions of its partials that it was published with. Never changed.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) root: Arc<Compiled>,
    /// Everything included, at any depth.
    partials: BTreeMap<Arc<str>, Arc<Compiled>>,
    /// The number of the publication that brought this text.
    pub(crate) version: u64,
    /// Shared by all versions of a name.
    pub(crate) counters: Arc<Counters>,
    pub(crate) max_output_bytes: usize,
    /// Everything included is simple enough to have a program.
    pub(crate) has_programs: bool,
    digest: OnceLock<Digest>,
}

impl Linked {
    /// Collects and checks what a template includes.
    pub(crate) fn new(
        root: &Arc<Compiled>,
        draft: &Draft<'_>,
        version: u64,
        counters: &Arc<Counters>,
        max_output_bytes: usize,
    ) -> Result<Self, Error> {
        let (partials, counts) = (BTreeMap::new(), BTreeMap::new());
        let mut walk = Linker { draft, partials, counts, path: vec![&root.name] };
        walk.visit(root)?;
        let partials = walk.partials;
        let has_program =
            |partial: &Compiled| partial.segments.iter().all(|segment| segment.program.is_some());
        let has_programs = partials.values().all(|partial| has_program(partial));
        let linked = Self {
            root: Arc::clone(root),
            partials,
            version,
            counters: Arc::clone(counters),
            max_output_bytes,
            has_programs,
            digest: OnceLock::new(),
        };
        linked.check_declared()?;
        linked.check_optional()?;
        Ok(linked)
    }

    pub(crate) fn partial(&self, name: &str) -> Option<&Compiled> {
        self.partials.get(name).map(|partial| &**partial)
    }

    pub(crate) fn partials(&self) -> impl Iterator<Item = &Compiled> {
        self.partials.values().map(|partial| &**partial)
    }

    /// Returns the digest of the text and of everything it includes.
    pub(crate) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| {
            let mut hasher = Hasher::new("template");
            hasher.digest(self.root.digest());
            for partial in self.partials() {
                hasher.field(&partial.name);
                hasher.digest(partial.digest());
            }
            hasher.end()
        })
    }

    /// Returns the figures of the template.
    pub(crate) fn stats(&self) -> TemplateStats {
        let Self { root, version, counters, .. } = self;
        TemplateStats {
            name: root.name.to_string(),
            version: *version,
            compile_time: root.compile_time,
            compiled_at: root.made_at,
            renders: counters.renders(),
            render_failures: counters.failures(),
            hits: counters.hits(),
            avg_render: counters.avg_render(),
            render_times: counters.histogram(),
        }
    }

    /// Returns whether an include anywhere hides the data from the template it includes.
    pub(crate) fn has_isolated(&self) -> bool {
        let mut all = self.partials().chain([&*self.root]);
        all.any(|compiled| compiled.includes.iter().any(|include| include.is_isolated))
    }

    /// Returns the variables that a render reads from the data, with those that may be absent.
    pub(crate) fn variables(&self) -> BTreeSet<String> {
        self.free(&self.root, &|_, _| true, &mut BTreeMap::new())
    }

    /// The variables of a template and of what it includes that no block around them binds, of the uses
    /// that count. `known` are those of partials.
    fn free(
        &self,
        compiled: &Compiled,
        counts: &dyn Fn(&Use, &str) -> bool,
        known: &mut BTreeMap<Arc<str>, BTreeSet<String>>,
    ) -> BTreeSet<String> {
        let text = &*compiled.text;
        let own = compiled.uses.iter().filter(|used| !used.is_local && counts(used, text));
        let mut free: BTreeSet<_> = own.map(|used| used.root(text).to_owned()).collect();
        for include in compiled.includes.iter().filter(|include| !include.is_isolated) {
            let Some(partial) = self.partial(&include.name) else { continue };
            let inner = self.free_in(partial, counts, known);
            free.extend(inner.iter().filter(|name| !include.locals.contains(name)).cloned());
        }
        free
    }

    /// The same of a partial, found out once.
    fn free_in<'k>(
        &self,
        partial: &Compiled,
        counts: &dyn Fn(&Use, &str) -> bool,
        known: &'k mut BTreeMap<Arc<str>, BTreeSet<String>>,
    ) -> &'k BTreeSet<String> {
        if !known.contains_key(&partial.name) {
            let free = self.free(partial, counts, known);
            known.insert(Arc::clone(&partial.name), free);
        }
        &known[&partial.name]
    }

    /// Checks that no partial reads a member that may be absent of a variable that a loop around its
    /// include has: `upon` would look for the variable outside of the loop.
    fn check_optional(&self) -> Result<(), Error> {
        let counts =
            |used: &Use, text: &str| used.has_optional_member(text) && used.root(text) != "loop";
        let mut known = BTreeMap::new();
        for compiled in self.partials().chain([&*self.root]) {
            let sees_loop = |include: &&Include| !include.is_isolated && !include.locals.is_empty();
            for include in compiled.includes.iter().filter(sees_loop) {
                let Some(partial) = self.partial(&include.name) else { continue };
                let free = self.free_in(partial, &counts, &mut known);
                if let Some(local) = include.locals.iter().find(|local| free.contains(*local)) {
                    let name = &include.name;
                    let message =
                        format!("a member of '{local}' may be absent in the included '{name}'");
                    let error = Error::new(ErrorKind::Syntax, message).named(local);
                    let error = error.help(crate::parse::give_it(name, local));
                    return Err(compiled.locate(error, include.offset));
                }
            }
        }
        Ok(())
    }

    /// Checks the variables of the partials against those that the root declares.
    fn check_declared(&self) -> Result<(), Error> {
        let Some(declared) = self.root.front_matter.variables() else { return Ok(()) };
        let names: HashSet<&str> = declared.iter().map(String::as_str).collect();
        let mut known = BTreeMap::new();
        for include in self.root.includes.iter().filter(|include| !include.is_isolated) {
            let Some(partial) = self.partial(&include.name) else { continue };
            let free = self.free_in(partial, &|_, _| true, &mut known);
            let missing = free
                .iter()
                .find(|name| !names.contains(name.as_str()) && !include.locals.contains(name));
            if let Some(name) = missing {
                let place = format!(" in the included '{}'", include.name);
                let error = undeclared(name, declared).note(&place);
                return Err(self.root.locate(error, include.offset));
            }
        }
        Ok(())
    }
}

struct Linker<'l> {
    draft: &'l Draft<'l>,
    partials: BTreeMap<Arc<str>, Arc<Compiled>>,
    /// How many includes each of the partials comes to.
    counts: BTreeMap<&'l str, usize>,
    /// The names from the root to the template that is being visited.
    path: Vec<&'l str>,
}

impl<'l> Linker<'l> {
    /// Visits what a template includes; returns how many includes that comes to.
    fn visit(&mut self, compiled: &'l Compiled) -> Result<usize, Error> {
        let mut count = 0;
        for include in &compiled.includes {
            let fail = |error: Error| compiled.locate(error, include.offset);
            let Some(partial) = self.draft.find(&include.name) else {
                return Err(fail(self.draft.unknown(&include.name, &compiled.name)));
            };
            if let Some(start) = self.path.iter().position(|name| *name == &*partial.name) {
                let mut names = self.path[start..].to_vec();
                names.push(&partial.name);
                let message = format!("templates include each other: {}", names.join(" > "));
                return Err(fail(Error::new(ErrorKind::Cycle, message).named(&include.name)));
            }
            if self.path.len() >= MAX_DEPTH {
                let message = format!("includes nest deeper than {MAX_DEPTH}");
                return Err(fail(Error::new(ErrorKind::Cycle, message).named(&include.name)));
            }
            if partial.has_roles() {
                let message = format!("'{}' has role lines and cannot be included", include.name);
                return Err(fail(Error::new(ErrorKind::Role, message).named(&include.name)).help(
                    "a message begins in the including template; leave the text to the partial",
                ));
            }
            let known = self.counts.get(&*partial.name).copied();
            let inner = if let Some(inner) = known {
                inner
            } else {
                self.path.push(&partial.name);
                let inner = self.visit(partial)?;
                self.path.pop();
                self.counts.insert(&partial.name, inner);
                self.partials.insert(Arc::clone(&partial.name), Arc::clone(partial));
                inner
            };
            count += 1 + inner;
            if count > MAX_INCLUDES {
                let message = format!("it comes to more than {MAX_INCLUDES} includes");
                let help = "partials that include each other twice double with each level";
                return Err(
                    fail(Error::new(ErrorKind::Cycle, message).named(&include.name)).help(help)
                );
            }
        }
        Ok(count)
    }
}
