//! "Did you mean": the nearest of the known names.

/// Returns the known name that is nearest to `word`, if one is near enough to be meant.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let limit = word.chars().count().div_ceil(3);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&word, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns `; did you mean "NAME"?`, or what is known if nothing is near.
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    match closest(word, known.iter().copied()) {
        Some(name) => format!("; did you mean \"{name}\"?"),
        None if known.is_empty() => String::new(),
        None => format!("; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = ["branch", "base", "message"];
        assert_eq!(closest("brnach", known), Some("branch"));
        assert_eq!(closest("Message", known), Some("message"));
        assert_eq!(closest("colour", known), None);
        assert_eq!(hint("bas", &known), "; did you mean \"base\"?");
        assert_eq!(hint("colour", &known), "; known: branch, base, message");
    }
}
