//! Pushes that are refused because somebody else has moved the branch at the remote.

use git_batch::{Class, Outcome};

/// How `git-batch` says it of a branch that had moved before the push.
const BEFORE: &str = "the remote's branch";

/// Words of git for a branch that is not where the push takes it to be.
const WORDS: [&str; 7] = [
    "non-fast-forward",
    "fetch first",
    "stale info",
    "remote ref updated since checkout",
    "but expected",
    "incorrect old value provided",
    "reference already exists",
];

/// Says whether a push was refused for that.
pub(crate) fn is_moved(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected { class: Class::Transient, reason } if says_so(reason))
}

/// Returns why a push was refused, in words of a user where git has only its own.
pub(crate) fn told(class: Class, reason: &str) -> String {
    if class == Class::Transient && says_so(reason) && !reason.starts_with(BEFORE) {
        return format!("somebody else has moved the branch at the remote meanwhile: {reason}");
    }
    reason.to_owned()
}

fn says_so(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    WORDS.iter().any(|word| reason.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_move_is_told_as_it_is() {
        for reason in ["cannot lock ref 'refs/heads/main': Unable to create", "timeout"] {
            assert_eq!(told(Class::Transient, reason), reason);
        }
        let moved = "the remote's branch \"b\" has commits that the local one has not \
                     (non-fast-forward)";
        assert_eq!(told(Class::Transient, moved), moved);
        let final_one = "reference already exists";
        assert_eq!(told(Class::Permanent, final_one), final_one);
        assert!(told(Class::Transient, final_one).starts_with("somebody else"));
    }
}
