//! What is known of trees, and what has to be known next.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::ObjectId;

use super::{Gate, Ran};
use crate::OpError;
use crate::record::Key;

/// The first line of each file, and then what it says. Another number is another format.
const HEADER: &str = "batchyard gate 1\n";
const PASS: &str = "pass\n";
const FAIL: &str = "fail\n";
const FAIL_AGAIN: &str = "fail again\n";

/// How long a pass and a failure count. A failure may have come from the machine.
const MAX_AGE: (Duration, Duration) = (Duration::from_hours(30 * 24), Duration::from_hours(1));
/// How many files there are at most.
const MAX_FILES: usize = 1000;

/// How many beginnings of a landing are looked at where what was there before fails.
const MAX_BEGINNINGS: usize = 8;

/// What is known of one tree: that it passes, or why not.
type Known = Result<(), Failure>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    why: String,
    /// Whether it was seen twice.
    is_sure: bool,
    /// Whether another run would say the same.
    is_lasting: bool,
}

/// What the gate says of trees.
#[derive(Debug)]
pub(crate) struct Verdicts {
    gate: Gate,
    folder: PathBuf,
    known: BTreeMap<ObjectId, Known>,
    /// Of trees that stood there before, and of those that the machine has no room for: why they cannot be
    /// checked out, if so.
    fits: BTreeMap<ObjectId, Option<OpError>>,
}

/// What is to be done with a landing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can be pushed.
    Passes,
    /// The gate has to look at this tree first.
    Ask(ObjectId),
    /// This step is the first with which it fails, counted from zero.
    Culprit(usize, String),
    /// It fails without any step.
    Base(String),
}

impl Verdicts {
    /// Begins with what is known in the folder of the writer.
    pub(crate) fn of(gate: &Gate, state: &Path) -> Verdicts {
        Verdicts {
            gate: gate.clone(),
            folder: state.join("gate"),
            known: BTreeMap::new(),
            fits: BTreeMap::new(),
        }
    }

    /// The command.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether it was noted if a tree can be checked out.
    pub(crate) fn has_tried(&self, tree: ObjectId) -> bool {
        self.fits.contains_key(&tree)
    }

    /// Notes that.
    pub(crate) fn note_fit(&mut self, tree: ObjectId, fault: Option<OpError>) {
        self.fits.insert(tree, fault);
    }

    /// Why a tree cannot be checked out, where that was noted.
    pub(crate) fn unfit(&self, tree: ObjectId) -> Option<&OpError> {
        self.fits.get(&tree)?.as_ref()
    }

    /// Notes what a run has said.
    pub(crate) fn note(&mut self, tree: ObjectId, ran: Ran) {
        let (text, known, is_lasting) = match ran {
            Ran::Passed => (format!("{HEADER}{PASS}"), Ok(()), true),
            Ran::Failed { why, is_lasting } => {
                let before = self.read(tree).and_then(Result::err);
                let is_sure = before.is_some();
                // What is kept counts for others too, so it is sure only if both would come again.
                let word = if before.is_some_and(|failure| failure.is_lasting) {
                    FAIL_AGAIN
                } else {
                    FAIL
                };
                let failure = Failure { is_sure, is_lasting, why: why.clone() };
                (format!("{HEADER}{word}{why}"), Err(failure), is_lasting)
            }
        };
        if is_lasting {
            // What is not kept is found out again.
            let _ = self.keep(tree, &text);
        }
        self.known.insert(tree, known);
    }

    /// Says what to do with steps that lead from the tree `base` to those in `steps`, one after the
    /// other. If there are none, it is about `base`.
    ///
    /// Halves the steps, so that of two which fail together the later one is the culprit, as it is in
    /// a conflict. Nobody is blamed for a failure that was seen only once. Where `base` fails already,
    /// steps may repair it, and the longest beginning that passes is looked for.
    pub(crate) fn judge(&mut self, base: ObjectId, steps: &[ObjectId]) -> Verdict {
        let all = steps.len();
        let after = |count: usize| if count == 0 { base } else { steps[count - 1] };
        match self.read(after(all)) {
            None => return Verdict::Ask(after(all)),
            Some(Ok(())) => return Verdict::Passes,
            Some(Err(_)) => {}
        }
        // With the first `passes` steps it passes, or there are none; with `fails` it fails.
        let (mut passes, mut fails) = (0, all);
        while fails - passes > 1 {
            let middle = usize::midpoint(passes, fails);
            match self.read(after(middle)) {
                None => return Verdict::Ask(after(middle)),
                Some(Ok(())) => passes = middle,
                Some(Err(_)) => fails = middle,
            }
        }
        if passes == 0 {
            match self.read(base) {
                None => return Verdict::Ask(base),
                Some(Ok(())) => {}
                Some(Err(_)) => match self.beginning(all, after) {
                    // What comes right behind it is known to fail.
                    Ok(Some(beginning)) => fails = beginning + 1,
                    Ok(None) => fails = 0,
                    Err(tree) => return Verdict::Ask(tree),
                },
            }
        }
        let blamed = after(fails);
        match self.read(blamed) {
            Some(Err(Failure { why, is_sure: true, .. })) if fails == 0 => Verdict::Base(why),
            Some(Err(Failure { why, is_sure: true, .. })) => Verdict::Culprit(fails - 1, why),
            _ => Verdict::Ask(blamed),
        }
    }

    /// The longest beginning of the steps that passes where nothing at all does not, as its number of
    /// steps. The error is the tree to look at next.
    fn beginning(
        &mut self,
        all: usize,
        after: impl Fn(usize) -> ObjectId,
    ) -> Result<Option<usize>, ObjectId> {
        for count in (1..all).rev().take(MAX_BEGINNINGS) {
            match self.read(after(count)) {
                None => return Err(after(count)),
                Some(Ok(())) => return Ok(Some(count)),
                Some(Err(_)) => {}
            }
        }
        Ok(None)
    }

    /// What is known of a tree.
    fn read(&mut self, tree: ObjectId) -> Option<Known> {
        if let Some(known) = self.known.get(&tree) {
            return Some(known.clone());
        }
        if self.gate.is_fresh {
            return None;
        }
        let path = self.path(tree);
        let written = fs::metadata(&path).ok()?.modified().ok()?;
        let age = SystemTime::now().duration_since(written).unwrap_or_default();
        let text = fs::read_to_string(path).ok()?;
        let text = text.strip_prefix(HEADER)?;
        let failure = |why: &str, is_sure| {
            let minutes = age.as_secs() / 60;
            let why = format!("{why} (found {minutes} minutes ago; ask afresh to look again)");
            Err(Failure { why, is_sure, is_lasting: true })
        };
        let known = if text == PASS && age < MAX_AGE.0 {
            Ok(())
        } else if age >= MAX_AGE.1 {
            return None;
        } else if let Some(why) = text.strip_prefix(FAIL_AGAIN) {
            failure(why, true)
        } else {
            failure(text.strip_prefix(FAIL)?, false)
        };
        self.known.insert(tree, known.clone());
        Some(known)
    }

    fn keep(&self, tree: ObjectId, text: &str) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.prune();
        let path = self.path(tree);
        // Others may write the same.
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        File::create(&temporary)?.write_all(text.as_bytes())?;
        fs::rename(temporary, path)
    }

    fn path(&self, tree: ObjectId) -> PathBuf {
        self.folder.join(Key::of_gate(&self.gate.fingerprint(), tree).to_string())
    }

    /// Forgets the oldest.
    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for path in entries.map(|entry| entry.path()) {
            let written = fs::metadata(&path).and_then(|data| data.modified());
            match (written, path.extension()) {
                (Ok(written), None) => files.push((written, path)),
                (Ok(written), Some(end)) if end == "new" => others.push((written, path)),
                _ => {}
            }
        }
        files.sort();
        // What a killed process did not put in place stays for as long as it may be at work.
        let is_old = |written: SystemTime| written.elapsed().is_ok_and(|age| age > MAX_AGE.1);
        let old = others.iter().filter(|(written, _)| is_old(*written));
        for (_, path) in files.iter().rev().skip(MAX_FILES).chain(old) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[n; 20])
    }

    fn failed(why: &str) -> Ran {
        Ran::Failed { why: why.to_owned(), is_lasting: true }
    }

    /// Answers every question by `passes`, and returns the end and the number of questions.
    fn ask(steps: u8, mut passes: impl FnMut(u8) -> bool) -> (Verdict, usize) {
        let gate = Gate::new("true").afresh();
        let state = tempfile::tempdir().expect("a folder");
        let mut verdicts = Verdicts::of(&gate, state.path());
        let trees: Vec<ObjectId> = (1..=steps).map(id).collect();
        for asked in 0.. {
            match verdicts.judge(id(0), &trees) {
                Verdict::Ask(tree) => {
                    let n = tree.as_bytes()[0];
                    verdicts.note(tree, if passes(n) { Ran::Passed } else { failed("no") });
                }
                end => return (end, asked),
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn the_first_step_that_fails_is_found_in_few_runs() {
        assert_eq!(ask(0, |_| true), (Verdict::Passes, 1));
        assert_eq!(ask(0, |_| false), (Verdict::Base("no".to_owned()), 2));
        assert_eq!(ask(64, |_| true), (Verdict::Passes, 1));
        for bad in 1..=64 {
            let (end, asked) = ask(64, |n| n < bad);
            assert_eq!(end, Verdict::Culprit(usize::from(bad) - 1, "no".to_owned()));
            assert!(asked <= 4 + 6, "{asked}");
        }
        assert_eq!(ask(64, |_| false).0, Verdict::Base("no".to_owned()));
    }

    #[test]
    fn what_repairs_the_base_is_not_kept_back_by_what_fails_behind_it() {
        // The second step repairs it, the third one breaks it again.
        let (end, _) = ask(3, |n| n == 2);
        assert_eq!(end, Verdict::Culprit(2, "no".to_owned()));
        let (end, _) = ask(2, |n| n == 2);
        assert_eq!(end, Verdict::Passes);
    }

    #[test]
    fn a_failure_that_is_seen_once_is_nobody_s_fault() {
        let mut seen = 0;
        // All of it fails the first time.
        let (end, _) = ask(3, |n| {
            seen += usize::from(n == 3);
            n != 3 || seen > 1
        });
        assert_eq!(end, Verdict::Passes);
    }

    #[test]
    fn verdicts_are_kept_for_the_same_command_and_tree() {
        let state = tempfile::tempdir().expect("a folder");
        let gate = Gate::new("make").with_args(["check"]);
        let mut verdicts = Verdicts::of(&gate, state.path());
        verdicts.note(id(1), Ran::Passed);
        verdicts.note(id(2), failed("broken"));
        verdicts.note(id(3), Ran::Failed { why: "slow".to_owned(), is_lasting: false });
        assert!(matches!(verdicts.read(id(3)), Some(Err(failure)) if failure.why == "slow"));

        let mut later = Verdicts::of(&gate, state.path());
        assert_eq!(later.read(id(1)), Some(Ok(())));
        let Some(Err(failure)) = later.read(id(2)) else { panic!("it is known") };
        assert!(failure.why.starts_with("broken (found 0 minutes ago") && !failure.is_sure);
        assert_eq!(later.read(id(3)), None);
        // Seen twice, but once only as what may pass.
        later.note(id(3), Ran::Failed { why: "slow".to_owned(), is_lasting: false });
        later.note(id(3), failed("broken"));
        let read = Verdicts::of(&gate, state.path()).read(id(3));
        assert!(matches!(read, Some(Err(failure)) if !failure.is_sure));
        let fresh = gate.clone().afresh();
        assert_eq!(Verdicts::of(&fresh, state.path()).read(id(1)), None);
        let other = Gate::new("make").with_args(["che", "ck"]);
        assert_eq!(Verdicts::of(&other, state.path()).read(id(1)), None);

        // A file that a power cut has emptied, and one that is old.
        fs::write(later.path(id(1)), "").expect("it can be written");
        assert_eq!(Verdicts::of(&gate, state.path()).read(id(1)), None);
        let long_ago = SystemTime::now() - Duration::from_hours(2);
        let file = File::options().append(true).open(later.path(id(2))).expect("it is there");
        file.set_modified(long_ago).expect("it can be set");
        assert_eq!(Verdicts::of(&gate, state.path()).read(id(2)), None);
    }
}
