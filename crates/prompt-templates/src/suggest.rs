/// Characters of a name over which nothing is suggested: comparing costs their product.
const MAX_CHARS: usize = 100;

/// Returns the candidate that `name` is probably a misspelling of.
pub(crate) fn nearest<S: AsRef<str>>(name: &str, candidates: &[S]) -> Option<String> {
    let length = name.chars().count();
    if length > MAX_CHARS {
        return None;
    }
    let limit = (length / 3).clamp(1, 3);
    // No byte count is off by more than a character has bytes, before and after lowercasing.
    let is_near = |candidate: &&str| candidate.len() <= 4 * (MAX_CHARS + limit);
    let candidates = candidates.iter().map(AsRef::as_ref).filter(is_near);
    let scored = candidates.map(|candidate| (distance(name, candidate), candidate));
    let best = scored.filter(|(distance, _)| *distance <= limit).min();
    best.map(|(_, candidate)| candidate.to_owned())
}

/// Edits from `a` to `b`: insert, delete, replace, or swap two neighbours. Case does not count.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<String>();
    strsim::osa_distance(&fold(a), &fold(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_finds_its_name() {
        let names = ["title", "body", "lessons"];
        assert_eq!(nearest("titel", &names).as_deref(), Some("title"));
        assert_eq!(nearest("Title", &names).as_deref(), Some("title"));
        assert_eq!(nearest("lesson", &names).as_deref(), Some("lessons"));
        assert_eq!(nearest("bdoy", &names).as_deref(), Some("body"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("author", &["title", "body"]), None);
        assert_eq!(nearest::<&str>("x", &[]), None);
    }
}
