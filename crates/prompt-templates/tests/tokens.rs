//! The estimate of tokens against a real vocabulary, on texts that it was not tuned on.

use std::path::Path;

use prompt_templates::estimate_tokens;

/// Samples of `tests/tokens`, and what `o200k_base` makes of them (tiktoken-rs 0.12.1). The constants of
/// the estimate were fitted on 32 other texts; none of these was looked at for it.
const SAMPLES: [(&str, usize); 19] = [
    ("chinese", 80),
    ("csv", 624),
    ("czech", 96),
    ("diff", 242),
    ("english", 138),
    ("greek", 58),
    ("japanese", 99),
    ("json", 167),
    ("log", 671),
    ("markdown", 175),
    ("portuguese", 65),
    ("python", 180),
    ("rust", 256),
    ("shell", 138),
    ("spanish", 80),
    ("sql", 121),
    ("toml", 114),
    ("typescript", 165),
    ("ukrainian", 97),
];

#[test]
fn the_estimate_is_near_on_texts_that_it_was_not_tuned_on() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokens");
    let (mut estimated, mut counted) = (0, 0);
    for (name, tokens) in SAMPLES {
        let text = std::fs::read_to_string(dir.join(format!("{name}.txt"))).unwrap();
        let estimate = estimate_tokens(&text);
        let percent = estimate * 100 / tokens;
        assert!((90..=120).contains(&percent), "{name}: {estimate} of {tokens}, {percent} %");
        estimated += estimate;
        counted += tokens;
    }
    assert!((100..=115).contains(&(estimated * 100 / counted)), "{estimated} of {counted}");
}
