//! Publications as a batch: however many changes come together, one new set is published for them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use batch_core::{BatchOf, BatchProcessor};

use crate::LoadError;
use crate::dialect::Dialect;
use crate::set::{Applied, Change, Set, Terms};
use crate::stats::{Events, count};

/// What readers, writers and the batcher of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) set: ArcSwap<Set>,
    pub(crate) terms: Terms,
    pub(crate) dialect: Arc<Dialect>,
    pub(crate) events: Events,
}

/// Applies changes to a copy of the set, one after the other, and publishes it once.
///
/// Each change is whole or not at all: one that fails leaves the copy as it was and keeps no other from
/// being made.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) shared: Arc<Shared>,
}

impl BatchProcessor for Publisher {
    type Key = ();
    type Item = Change;
    type Output = Applied;
    type Error = LoadError;

    fn key(&self, _: &Change) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        let Shared { set, terms, events, .. } = &*self.shared;
        let mut draft = Set::clone(&set.load());
        let changes = batch.items().iter();
        let results: Vec<_> = changes.map(|change| draft.apply(change, terms)).collect();
        if results.iter().flatten().any(|applied| !applied.wants_all) {
            set.store(Arc::new(draft));
            count(&events.evictions, results.iter().flatten().map(|applied| applied.evicted).sum());
            count(&events.publications, 1);
        }
        // Published first: who has the answer finds the change made.
        batch.resolve_all(results);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use batch_core::{BatchError, Batcher, Close};

    use super::*;
    use crate::compiled::Compiled;
    use crate::stats::Counters;

    fn compiled(name: &str, text: &str) -> Arc<Compiled> {
        Arc::new(Compiled::new(name, None, text, &Dialect::standard()).unwrap())
    }

    #[test]
    fn changes_that_come_together_are_one_publication_and_a_bad_one_fails_alone() {
        let shared = Arc::new(Shared {
            set: ArcSwap::default(),
            terms: Terms::new(10, usize::MAX, Counters::default()),
            dialect: Dialect::standard(),
            events: Events::default(),
        });
        let batcher =
            Batcher::builder(Publisher { shared: Arc::clone(&shared) }).inline().build().unwrap();
        let compile = |(name, text)| Change::Compile(compiled(name, text));
        let changes = [
            ("a", "1"),
            ("b", "{% include \"absent\" %}"),
            ("c", "{% include \"a\" %}"),
            ("a", "2"),
        ];
        let outcomes = batcher.submit_all(changes.map(compile)).unwrap().wait();

        assert!(matches!(&outcomes[..], [Ok(_), Err(BatchError::Failed(_)), Ok(_), Ok(_)]));
        assert_eq!(shared.events.publications.load(Ordering::Relaxed), 1);
        let set = shared.set.load();
        let included = set.peek("c").unwrap().partial("a").unwrap();
        assert_eq!((&*included.text, set.len()), ("2", 2));
    }

    #[test]
    fn a_change_that_fails_leaves_nothing_of_itself() {
        let mut set = Set::default();
        let terms = Terms::new(1, usize::MAX, Counters::default());
        let compiled = |(name, text)| compiled(name, text);
        let mut apply = |change: &Change| set.apply(change, &terms).map(|_| format!("{set:?}"));
        apply(&Change::Load([("_p", "p"), ("a", "{% include \"_p\" %}")].map(compiled).into()))
            .unwrap();
        let before = apply(&Change::Compile(compiled(("b", "{% include \"_p\" %}")))).unwrap();
        for change in [
            Change::Remove("_p".into()),
            Change::Load([("a", "new"), ("c", "new")].map(compiled).into()),
            Change::Load(
                [("_p", "{% include \"a\" %}"), ("a", "{% include \"_p\" %}")].map(compiled).into(),
            ),
            Change::Compile(compiled(("_p", "{% include \"b\" %}"))),
            Change::Compile(compiled(("d", "{% include \"absent\" %}"))),
        ] {
            assert!(apply(&change).is_err(), "{change:?}");
        }
        assert_eq!(format!("{set:?}"), before);
    }

    /// Nothing outside closes the batcher; if it ever is, a change says so and nothing hangs.
    #[test]
    fn a_store_that_cannot_publish_says_so_and_goes_on_rendering() {
        let prompts = crate::Prompts::builder().build().unwrap();
        prompts.compile("a", "1").unwrap();
        drop(prompts.batcher.close(Close::Drain, Duration::from_mins(1)));
        let error = prompts.compile("a", "2").unwrap_err();
        insta::assert_snapshot!(
            format!("{:?}: {error}\n{error:#}", error.kind()),
            @r"
        Store: nothing was published: the batcher is closed
        nothing was published: the batcher is closed
        "
        );
        assert_eq!(prompts.render("a", &crate::Context::new()).unwrap(), "1");
    }
}
