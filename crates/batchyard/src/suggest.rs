//! "Did you mean": the nearest of the known names.

/// Returns the known name that is nearest to `word`, if one is near enough to be meant.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let limit = word.len().div_ceil(3);
    known
        .into_iter()
        .map(|name| (distance(&word, &name.to_lowercase().chars().collect::<Vec<_>>()), name))
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

/// Optimal string alignment: a transposition of neighbours counts once.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
