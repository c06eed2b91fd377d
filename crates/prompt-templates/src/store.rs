use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use batch_core::{BatchError, Batcher};

use crate::compiled::Compiled;
use crate::linked::Linked;
use crate::publish::{Publisher, Shared};
use crate::reload::Dir;
use crate::set::{Applied, Change, Set};
use crate::stats::count;
use crate::{Builder, Context, Error, ErrorKind, LoadError, Message, Prompt, Stats, TemplateStats};

/// A store of compiled prompts.
///
/// Clones are the same store. Readers never wait: they work on a set of templates that nothing changes,
/// and a change publishes a new one. Whoever holds a [`Prompt`] keeps the version it has.
///
/// ```
/// use prompt_templates::{Context, Prompts};
///
/// let prompts = Prompts::builder().build()?;
/// prompts.compile("greet", "Hello, {{ name }}!")?;
/// let text = prompts.render("greet", Context::new().set("name", "Ada")?)?;
/// assert_eq!(text, "Hello, Ada!");
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prompts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) batcher: Batcher<Publisher>,
    pub(crate) dir: Option<Arc<Dir>>,
}

impl Prompts {
    /// Returns a builder with the defaults: 100 templates by call, no folder.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns a store with every `NAME.prompt.md` under a folder.
    ///
    /// The name of `a/b.prompt.md` is `a/b`, that of `b.short.prompt.md` is `b.short`, a
    /// [`variant`](Self::variant) of `b`. A file whose name begins with `_` is a partial: it can be
    /// included under its name, with the `_`, and is left out of [`names`](Self::names). Hidden files
    /// and other endings are passed over; links to folders are not followed. The text of a file is taken
    /// as it is, its last line break included; only a byte-order mark at its start is dropped.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the folder and the files in it.
    pub fn load_dir(dir: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::builder().load_dir(dir)
    }

    /// Compiles a text under a name, and publishes it.
    ///
    /// If the name has this very text already (compared byte for byte), that prompt is returned and
    /// nothing is compiled. Another text is a new version, also of templates that include this one. If
    /// it does not compile, the old version stays.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, or with a template that includes it and does not go with it.
    pub fn compile(&self, name: &str, text: &str) -> Result<Prompt, Error> {
        if let Some(prompt) = self.get(name).filter(|prompt| prompt.text() == text) {
            prompt.linked.counters.hit();
            return Ok(prompt);
        }
        let events = &self.shared.events;
        // Compiled by the caller, outside of the batch that only publishes.
        let compiled = Compiled::new(name, None, text, &self.shared.dialect);
        count(&events.compiles, usize::from(compiled.is_ok()));
        let applied = compiled
            .map_err(LoadError::from)
            .and_then(|compiled| self.publish(Change::Compile(Arc::new(compiled))));
        let applied = applied.map_err(|errors| {
            count(&events.compile_failures, 1);
            first(errors)
        })?;
        applied.prompt.ok_or_else(|| Error::new(ErrorKind::Store, "the publication gave no prompt"))
    }

    /// Compiles a text, unless it is compiled already, and renders it.
    ///
    /// # Errors
    ///
    /// As for [`compile`](Self::compile) and [`Prompt::render`].
    pub fn compile_and_render(
        &self,
        name: &str,
        text: &str,
        context: &Context,
    ) -> Result<String, Error> {
        // Under the guard of the set: to clone the pointer would cost as much as a small render.
        let set = self.shared.set.load();
        if let Some(linked) = set.get(name).filter(|linked| *linked.root.text == *text) {
            linked.counters.hit();
            return linked.render(context);
        }
        drop(set);
        self.compile(name, text)?.render(context)
    }

    /// Returns the present version of a template.
    pub fn get(&self, name: &str) -> Option<Prompt> {
        let set = self.shared.set.load();
        set.get(name).map(|linked| Prompt { linked: Arc::clone(linked) })
    }

    /// Renders the present version of a template as one text; see [`Prompt::render`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], and as for [`Prompt::render`].
    pub fn render(&self, name: &str, context: &Context) -> Result<String, Error> {
        // Under the guard of the set: to clone the pointer would cost as much as a small render.
        let set = self.shared.set.load();
        self.find(&set, name)?.render(context)
    }

    /// Renders the present version of a template into the memory of `text`; see [`Prompt::render_into`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], and as for [`Prompt::render`].
    pub fn render_into(
        &self,
        name: &str,
        context: &Context,
        text: &mut String,
    ) -> Result<(), Error> {
        let set = self.shared.set.load();
        self.find(&set, name)?.render_into(context, text)
    }

    /// Renders the present version of a template as messages; see [`Prompt::messages`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], and as for [`Prompt::messages`].
    pub fn messages(&self, name: &str, context: &Context) -> Result<Vec<Message>, Error> {
        let set = self.shared.set.load();
        self.find(&set, name)?.messages(context)
    }

    fn find<'s>(&self, set: &'s Set, name: &str) -> Result<&'s Arc<Linked>, Error> {
        set.get(name)
            .ok_or_else(|| Error::unknown(ErrorKind::NotFound, "template", name, self.names()))
    }

    /// Returns the present version of a variant of a template: `NAME.VARIANT` if there is one, else
    /// `NAME`.
    pub fn variant(&self, name: &str, variant: &str) -> Option<Prompt> {
        self.get(&format!("{name}.{variant}")).or_else(|| self.get(name))
    }

    /// Returns the variants that there are of a template, in order, without its name in front.
    pub fn variants(&self, name: &str) -> Vec<String> {
        let set = self.shared.set.load();
        let names = set.iter().map(|linked| &*linked.root.name);
        let variant = |other: &str| Some(other.strip_prefix(name)?.strip_prefix('.')?.to_owned());
        names.filter_map(variant).filter(|variant| !variant.contains('/')).collect()
    }

    /// Returns whether there is a template of this name. Does not count as a use of it.
    pub fn contains(&self, name: &str) -> bool {
        self.shared.set.load().peek(name).is_some()
    }

    /// Returns the names of all templates that are no partials, in order.
    pub fn names(&self) -> Vec<String> {
        let set = self.shared.set.load();
        let names = set.iter().map(|linked| &*linked.root.name);
        names.filter(|name| !is_partial(name)).map(str::to_owned).collect()
    }

    /// Returns the number of templates, partials included.
    pub fn len(&self) -> usize {
        self.shared.set.load().len()
    }

    /// Returns whether there is no template.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes a template; returns whether it was there. A reload brings one of the folder back.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`] if others include it.
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        let applied = self.publish(Change::Remove(name.into())).map_err(first)?;
        Ok(applied.removed > 0)
    }

    /// Removes all templates; a reload brings those of the folder back.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] if the store cannot publish.
    pub fn clear(&self) -> Result<(), Error> {
        self.publish(Change::Clear).map(drop).map_err(first)
    }

    /// Returns the figures of the store.
    pub fn stats(&self) -> Stats {
        let Shared { set, terms, events, .. } = &*self.shared;
        let (set, totals) = (set.load(), &terms.totals);
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            templates: set.len(),
            called: set.called(),
            capacity: terms.capacity,
            compiles: read(&events.compiles),
            compile_failures: read(&events.compile_failures),
            hits: totals.hits(),
            renders: totals.renders(),
            render_failures: totals.failures(),
            avg_render: totals.avg_render(),
            render_times: totals.histogram(),
            evictions: read(&events.evictions),
            publications: read(&events.publications),
            reloads: read(&events.reloads),
            reload_failures: read(&events.reload_failures),
        }
    }

    /// Returns the figures of one template.
    pub fn template_stats(&self, name: &str) -> Option<TemplateStats> {
        self.shared.set.load().peek(name).map(|linked| linked.stats())
    }

    /// Returns the figures of all templates, partials included, ordered by name.
    pub fn all_template_stats(&self) -> Vec<TemplateStats> {
        self.shared.set.load().iter().map(|linked| linked.stats()).collect()
    }

    /// Sets all counts to zero: of the store and of each template. Templates, versions and prompts that
    /// are held stay. A render that is under way may be counted in part.
    pub fn reset_stats(&self) {
        let Shared { set, terms, events, .. } = &*self.shared;
        terms.totals.reset();
        events.reset();
        set.load().iter().for_each(|linked| linked.counters.reset());
    }

    /// Has a change made, together with those of other threads that come at the same time.
    pub(crate) fn publish(&self, change: Change) -> Result<Applied, LoadError> {
        let lost = |error: &dyn std::fmt::Display| {
            LoadError::from(Error::new(ErrorKind::Store, format!("nothing was published: {error}")))
        };
        let ticket = self.batcher.submit(change).map_err(|error| lost(&error))?;
        ticket.wait().map_err(|error| match error {
            BatchError::Failed(errors) => LoadError::clone(&errors),
            other => lost(&other),
        })
    }
}

/// Returns whether a name is that of a partial: its last part begins with `_`.
pub(crate) fn is_partial(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with('_'))
}

fn first(errors: LoadError) -> Error {
    let first = errors.into_errors().into_iter().next();
    first.unwrap_or_else(|| Error::new(ErrorKind::Store, "nothing was published"))
}
