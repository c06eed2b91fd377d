use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use batch_core::Batcher;

use crate::dialect::{Custom, Dialect};
use crate::publish::{Publisher, Shared};
use crate::reload::Dir;
use crate::set::{Set, Terms};
use crate::stats::{Counters, Events};
use crate::{Error, ErrorKind, LoadError, Prompts};

/// Changes that share one publication.
const MAX_BATCH: usize = 1_000;

/// Templates compiled by call, unless the builder says otherwise.
const DEFAULT_CAPACITY: usize = 100;

/// Bytes of one render, unless the builder says otherwise: 64 MiB.
const DEFAULT_MAX_OUTPUT: usize = 64 << 20;

/// Settings of a store.
#[derive(Clone)]
#[must_use]
pub struct Builder {
    capacity: usize,
    max_output_bytes: usize,
    is_tidy: bool,
    is_exact: bool,
    functions: Vec<Custom>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
            max_output_bytes: DEFAULT_MAX_OUTPUT,
            is_tidy: false,
            is_exact: false,
            functions: Vec::new(),
        }
    }

    /// Sets how many templates that were compiled by call are kept. The default, also for 0, is 100.
    ///
    /// Over it, one that has not been used for long goes (the SIEVE order). Templates of the folder and
    /// templates that others include never go and do not count, and a [`Prompt`](crate::Prompt) that is
    /// held goes on rendering.
    pub fn capacity(mut self, templates: usize) -> Self {
        self.capacity = if templates == 0 { DEFAULT_CAPACITY } else { templates };
        self
    }

    /// Sets how many bytes one render may give, all messages together. The default is 64 MiB.
    ///
    /// A render that would give more fails with [`ErrorKind::Output`] before it takes that memory.
    pub fn max_output_bytes(mut self, bytes: usize) -> Self {
        self.max_output_bytes = bytes;
        self
    }

    /// Takes the line away on which a block tag or a comment stands alone, in each template whose front
    /// matter does not say `tidy_blocks: false`.
    ///
    /// ```
    /// use prompt_templates::{Context, Prompts};
    ///
    /// let prompts = Prompts::builder().tidy_blocks().build()?;
    /// let text = "Rules:\n{% for rule in rules %}\n- {{ rule }}\n{% endfor %}\nEnd";
    /// let prompt = prompts.compile("rules", text)?;
    /// let text = prompt.render(Context::new().set("rules", &["no panics", "tests"])?)?;
    /// assert_eq!(text, "Rules:\n- no panics\n- tests\nEnd");
    /// # Ok::<(), prompt_templates::Error>(())
    /// ```
    pub fn tidy_blocks(mut self) -> Self {
        self.is_tidy = true;
        self
    }

    /// Reads the clock for every render, not for one in 64. Costs two readings for each.
    pub fn exact_timing(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Adds a function that templates can call with exactly `arity` arguments, 1 to 5.
    ///
    /// It is called once for each use in a render, and once more where the render fails, to find out
    /// the place. It should depend on nothing but its arguments; a text that it gives is data. Integers
    /// that are neither `i64` nor `u64`, and floats that are no number, come as their text.
    ///
    /// ```
    /// use prompt_templates::{Context, Prompts};
    /// use serde_json::Value;
    ///
    /// let shout = |arguments: &[Value]| match &arguments[0] {
    ///     Value::String(text) => Ok(text.to_uppercase().into()),
    ///     other => Err(format!("{other} is no text")),
    /// };
    /// let prompts = Prompts::builder().function("shout", 1, shout).build()?;
    /// let prompt = prompts.compile("greet", "{{ name | shout }}!")?;
    /// assert_eq!(prompt.render(Context::new().set("name", "Ada")?)?, "ADA!");
    /// assert!(prompt.render(Context::new().set("name", &1)?).is_err());
    /// # Ok::<(), prompt_templates::Error>(())
    /// ```
    pub fn function<E: fmt::Display>(
        mut self,
        name: impl Into<String>,
        arity: usize,
        call: impl Fn(&[serde_json::Value]) -> Result<serde_json::Value, E> + Send + Sync + 'static,
    ) -> Self {
        let call = Arc::new(move |arguments: &[serde_json::Value]| {
            call(arguments).map_err(|error| error.to_string())
        });
        self.functions.push(Custom { name: name.into(), arity, call });
        self
    }

    /// Returns an empty store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownFunction`] for a function whose name or number of arguments cannot be;
    /// [`ErrorKind::Store`] if the batcher of the publications cannot be set up.
    pub fn build(self) -> Result<Prompts, Error> {
        self.open(None)
    }

    /// Returns a store with the templates of a folder; see [`Prompts::load_dir`].
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build), and everything that is wrong with the folder and its files.
    pub fn load_dir(self, dir: impl AsRef<Path>) -> Result<Prompts, LoadError> {
        let prompts = self.open(Some(Dir::new(dir.as_ref())))?;
        prompts.reload()?;
        Ok(prompts)
    }

    /// Returns everything that is wrong with the templates of a folder, as [`load_dir`](Self::load_dir)
    /// with these settings would find it, ordered by file.
    pub fn check_dir(self, dir: impl AsRef<Path>) -> Vec<Error> {
        match self.dialect() {
            Ok(dialect) => crate::load::check_dir(dir.as_ref(), &dialect),
            Err(error) => vec![error],
        }
    }

    fn dialect(&self) -> Result<Arc<Dialect>, Error> {
        Dialect::new(&self.functions, self.is_tidy)
    }

    fn open(self, dir: Option<Dir>) -> Result<Prompts, Error> {
        let dialect = self.dialect()?;
        let totals = if self.is_exact { Counters::exact() } else { Counters::default() };
        let shared = Arc::new(Shared {
            set: ArcSwap::from_pointee(Set::default()),
            terms: Terms::new(self.capacity, self.max_output_bytes, totals),
            dialect,
            events: Events::default(),
        });
        let publisher = Publisher { shared: Arc::clone(&shared) };
        let batcher = Batcher::builder(publisher)
            .inline()
            .max_batch_items(MAX_BATCH)
            .max_block(None)
            .delivery_timeout(None)
            .history(0)
            .build()
            .map_err(|error| Error::new(ErrorKind::Store, error.to_string()))?;
        Ok(Prompts { shared, batcher, dir: dir.map(Arc::new) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions: Vec<_> = self.functions.iter().map(|function| &function.name).collect();
        f.debug_struct("Builder")
            .field("capacity", &self.capacity)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("tidy_blocks", &self.is_tidy)
            .field("exact_timing", &self.is_exact)
            .field("functions", &functions)
            .finish()
    }
}
