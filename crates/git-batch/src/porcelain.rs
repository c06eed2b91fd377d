//! Reads what `git push --porcelain` writes, and what its reasons mean.
//!
//! A line of it is `<flag> TAB <from>:<to> TAB <summary> (<reason>)`. The reason comes from the
//! remote and may hold anything, even line ends followed by what looks like another line. So a
//! line counts only if it names a pair that was pushed, and of several lines for one ref the
//! worst counts.

use bstr::ByteSlice;

use crate::publish::scrub;

/// Whether the same push can succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The remote moved or was busy: fetch, and try again.
    Transient,
    /// A hook, a policy or a rule refused: the same push is refused again.
    Permanent,
}

/// What became of one ref in a push.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushStatus {
    /// The remote confirmed that the ref moved.
    Updated,
    /// The remote confirmed that the ref is new.
    Created,
    /// The remote confirmed that the ref moved, to a commit that does not descend from the old.
    Forced,
    /// The remote confirmed that the ref is gone.
    Deleted,
    /// The ref was there already; nothing was sent.
    UpToDate,
    /// The ref did not move.
    Rejected {
        /// Whether trying again can help.
        class: Class,
        /// What git or the remote gave as the reason, in one line, fit for a terminal.
        reason: String,
    },
    /// Nobody has said what became of the ref, and what the remote has leaves that open: it may have
    /// moved. To push it again is safe; to make its commits again is not.
    Unknown {
        /// Why it is not known, in one line.
        reason: String,
    },
}

impl PushStatus {
    /// Returns true if the remote confirmed that the ref is as it was pushed.
    pub fn is_landed(&self) -> bool {
        matches!(
            self,
            PushStatus::Updated
                | PushStatus::Created
                | PushStatus::Forced
                | PushStatus::Deleted
                | PushStatus::UpToDate
        )
    }
}

/// One line about one ref.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: &'a [u8],
    /// `None` if the connection ended before the remote had said what became of the ref.
    pub(crate) status: Option<PushStatus>,
}

/// Yields the lines about refs in the output of a push; all others are passed over.
pub(crate) fn lines(stdout: &[u8]) -> impl Iterator<Item = Line<'_>> {
    stdout.lines().filter_map(line)
}

fn line(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.splitn(3, |byte| *byte == b'\t');
    let (flag, pair, summary) = (fields.next()?, fields.next()?, fields.next()?);
    let colon = pair.find_byte(b':')?;
    let (from, to) = (&pair[..colon], &pair[colon + 1..]);
    let status = match flag {
        b" " => Some(PushStatus::Updated),
        b"*" => Some(PushStatus::Created),
        b"+" => Some(PushStatus::Forced),
        b"-" => Some(PushStatus::Deleted),
        b"=" => Some(PushStatus::UpToDate),
        b"!" if summary.starts_with(b"[remote failure]") => None,
        b"!" => Some(refusal(summary)),
        _ => return None,
    };
    Some(Line { from, to, status })
}

/// Reads the summary of a ref that did not move: `[remote rejected] (hook declined)`.
fn refusal(summary: &[u8]) -> PushStatus {
    let reason = match summary.split_once_str(" (") {
        Some((_, reason)) => reason.strip_suffix(b")").unwrap_or(reason),
        None => summary,
    };
    let reason = scrub::line(reason);
    PushStatus::Rejected { class: classify(&reason), reason }
}

/// Says whether a refusal for `reason` can pass.
///
/// A reason that is not known is taken for final: to try again in vain costs a round trip each
/// time, and may be what a policy counts.
pub(crate) fn classify(reason: &str) -> Class {
    /// Beats the list below: these are not healed by time.
    const PERMANENT: [&str; 8] = [
        "hook declined",
        "exists; cannot create",
        "conflict",
        "protected",
        "prohibited",
        "checked out",
        "permission",
        "locked branch",
    ];
    const TRANSIENT: [&str; 11] = [
        "atomic push failed",
        "atomic push failure",
        "atomic transaction failed",
        "failed to update ref",
        "failed to start transaction",
        "cannot lock ref",
        "failed to lock",
        "lock_failure",
        // Two pushes of the same objects at one moment.
        "unable to migrate objects",
        "try again",
        "timeout",
    ];
    let is_known = |list: &[&str]| is_in(list, reason);
    let can_pass = !is_known(&PERMANENT) && (is_known(&MOVED) || is_known(&TRANSIENT));
    if can_pass { Class::Transient } else { Class::Permanent }
}

/// Refusals of a branch that is not where the push takes it to be, as somebody else has moved it.
const MOVED: [&str; 7] = [
    "fetch first",
    "non-fast-forward",
    "stale info",
    "remote ref updated since checkout",
    "incorrect old value provided",
    "reference already exists",
    // Behind "cannot lock ref": where the branch is.
    "but expected",
];

/// Says whether a refusal that can pass is for that.
pub(crate) fn is_moved(reason: &str) -> bool {
    is_in(&MOVED, reason)
}

fn is_in(list: &[&str], reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    list.iter().any(|known| reason.contains(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Who cannot tell one from the other is told to overwrite what somebody has just pushed.
    #[test]
    fn a_branch_that_moved_is_told_from_what_else_can_pass() {
        for (reason, moved) in [
            ("fetch first", true),
            ("stale info", true),
            ("cannot lock ref 'refs/heads/a': is at 1 but expected 2", true),
            ("cannot lock ref 'refs/heads/a': Unable to create 'a.lock': File exists.", false),
            ("timeout", false),
            ("pre-receive hook declined", false),
        ] {
            let outcome =
                crate::Outcome::Rejected { class: classify(reason), reason: reason.to_owned() };
            assert_eq!(outcome.is_moved(), moved, "{reason}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_read_and_nothing_is_invented(stdout: Vec<u8>) {
            for line in lines(&stdout) {
                prop_assert!(stdout.contains_str(line.from) && stdout.contains_str(line.to));
            }
        }

        /// Whatever a remote gives as its reason, a refused ref is refused, and the reason can be shown.
        #[test]
        fn a_refusal_is_a_refusal_whatever_its_reason(reason: String, is_remote: bool) {
            let who = if is_remote { "remote rejected" } else { "rejected" };
            let stdout = format!("!\tA:refs/heads/x\t[{who}] ({reason})\n");
            let first = lines(stdout.as_bytes()).next();
            // A line end in it cuts it, and the rest is no line about this ref and object.
            let status = first.expect("a line").status;
            let Some(PushStatus::Rejected { reason, .. }) = status else {
                return Err(TestCaseError::fail(format!("{status:?}")));
            };
            prop_assert!(!reason.chars().any(char::is_control), "{:?}", reason);
        }

        #[test]
        fn refs_and_objects_come_back(from in "[0-9a-f]{40}", to in "refs/heads/[a-z]{1,20}") {
            for (flag, landed) in [(" ", true), ("*", true), ("=", true), ("!", false)] {
                let stdout = format!("{flag}\t{from}:{to}\tsummary\n");
                let read = lines(stdout.as_bytes()).next().expect("a line");
                prop_assert_eq!((read.from, read.to), (from.as_bytes(), to.as_bytes()));
                prop_assert_eq!(read.status.is_some_and(|status| status.is_landed()), landed);
            }
        }
    }

    fn rejected(class: Class, reason: &str) -> PushStatus {
        PushStatus::Rejected { class, reason: reason.to_owned() }
    }

    #[test]
    fn every_flag_has_its_status() {
        let stdout = b"To file:///r.git\n\
             =\tA:refs/heads/same\t[up to date]\n\
             \x20\tB:refs/heads/moved\t1111111..2222222\n\
             *\tC:refs/heads/new\t[new branch]\n\
             +\tD:refs/heads/forced\t1111111...2222222 (forced update)\n\
             -\t:refs/heads/gone\t[deleted]\n\
             !\tE:refs/heads/no\t[rejected] (fetch first)\n\
             !\tF:refs/heads/hook\t[remote rejected] (hook declined)\n\
             !\tG:refs/heads/silent\t[remote failure] (remote failed to report status)\n\
             Done\n";
        let read: Vec<_> = lines(stdout).map(|l| (l.from, l.to, l.status)).collect();
        let want: [(&[u8], &[u8], Option<PushStatus>); 8] = [
            (b"A", b"refs/heads/same", Some(PushStatus::UpToDate)),
            (b"B", b"refs/heads/moved", Some(PushStatus::Updated)),
            (b"C", b"refs/heads/new", Some(PushStatus::Created)),
            (b"D", b"refs/heads/forced", Some(PushStatus::Forced)),
            (b"", b"refs/heads/gone", Some(PushStatus::Deleted)),
            (b"E", b"refs/heads/no", Some(rejected(Class::Transient, "fetch first"))),
            (b"F", b"refs/heads/hook", Some(rejected(Class::Permanent, "hook declined"))),
            (b"G", b"refs/heads/silent", None),
        ];
        assert_eq!(read, want);
    }

    #[test]
    fn what_is_no_line_about_a_ref_is_passed_over() {
        for text in
            ["", "Done", "To x", "*\tno-colon\t[new branch]", "?\tA:r\tx", "*\tA:r", "**\tA:r\t"]
        {
            assert_eq!(lines(text.as_bytes()).count(), 0, "{text:?}");
        }
    }

    #[test]
    fn a_reason_may_hold_brackets_and_control_characters() {
        let read = lines(b"!\tA:r\t[remote rejected] (no (really) \x1b[31m)\n").next();
        assert_eq!(
            read.and_then(|line| line.status),
            Some(rejected(Class::Permanent, "no (really) \u{fffd}[31m"))
        );
    }

    #[test]
    fn reasons_of_servers_are_classified() {
        for transient in [
            "non-fast-forward",
            "failed to update ref",
            "cannot lock ref 'refs/heads/x': is at 1 but expected 2",
            "incorrect old value provided",
            "failed to lock",
        ] {
            assert_eq!(classify(transient), Class::Transient, "{transient}");
        }
        for permanent in [
            "pre-receive hook declined",
            "protected branch hook declined",
            "push declined due to repository rule violations",
            "branch is currently checked out",
            "deletion prohibited",
            "cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'",
            "refname conflict",
            "unpacker error",
            "needs force",
            "something new",
        ] {
            assert_eq!(classify(permanent), Class::Permanent, "{permanent}");
        }
    }
}
