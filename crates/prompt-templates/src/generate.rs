//! Writes the text of a segment as a source for `upon`.
//!
//! Tags are copied. What is text here, but a delimiter there, becomes a string in a tag, so that only
//! tags of the template are tags of the source.

use crate::delimiters::{Delimiter, STANDARD};
use crate::lex::{Chunk, Span, Tag};

/// A source for `upon`, and where its parts come from.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) source: String,
    pub(crate) origins: Origins,
}

/// Which place in a template a place in the source comes from.
#[derive(Debug)]
pub(crate) struct Origins(Vec<Copied>);

/// A run of bytes that was copied.
#[derive(Debug)]
struct Copied {
    generated: usize,
    original: usize,
    length: usize,
}

impl Origins {
    /// Returns the place in the template that an offset of the source comes from.
    pub(crate) fn of(&self, offset: usize) -> usize {
        let after = self.0.partition_point(|copied| copied.generated <= offset);
        after.checked_sub(1).map_or(0, |index| {
            let copied = &self.0[index];
            copied.original + (offset - copied.generated).min(copied.length)
        })
    }
}

impl Generated {
    /// Makes room for what chunks will be as a source, unless braces have to be set apart.
    fn for_chunks(chunks: &[Chunk]) -> Self {
        let length = |chunk: &Chunk| match chunk {
            Chunk::Text(span) | Chunk::Raw(span) => (span.len(), 1),
            // With the longest delimiters of `upon`, both of them.
            Chunk::Silent { .. } => (8, 0),
            Chunk::Expression(tag) | Chunk::Block(tag) => (tag.span.len() + 4, 3),
        };
        let add = |(bytes, copies), chunk| {
            let (more, one) = length(chunk);
            (bytes + more, copies + one)
        };
        let (bytes, copies) = chunks.iter().fold((0, 0), add);
        let origins = Origins(Vec::with_capacity(copies));
        Self { source: String::with_capacity(bytes), origins }
    }

    /// Notes that what is written next stands for what is at `original`.
    fn mark(&mut self, original: usize) {
        self.origins.0.push(Copied { generated: self.source.len(), original, length: 0 });
    }

    fn copy(&mut self, text: &str, span: Span) {
        if !span.is_empty() {
            let (generated, original) = (self.source.len(), span.start);
            self.origins.0.push(Copied { generated, original, length: span.len() });
            self.source.push_str(&text[span]);
        }
    }

    /// Copies a tag, between the delimiters of `upon`.
    fn tag(&mut self, text: &str, tag: &Tag, kind: Delimiter, insertions: &[(usize, String)]) {
        let (open, close) = STANDARD[kind as usize];
        self.mark(tag.span.start);
        self.source.push_str(open);
        if tag.trim_before {
            self.source.push('-');
        }
        let mut from = tag.start;
        let first = insertions.partition_point(|(at, _)| *at < tag.span.start);
        let own = insertions[first..].iter().take_while(|(at, _)| *at < tag.span.end);
        for (at, inserted) in own {
            self.copy(text, from..*at);
            self.source.push_str(inserted);
            from = *at;
        }
        self.copy(text, from..tag.end);
        self.mark(tag.end);
        if tag.trim_after {
            self.source.push('-');
        }
        self.source.push_str(close);
    }

    /// Copies text in which nothing may be taken for a delimiter.
    fn copy_text(&mut self, text: &str, span: Span) {
        let bytes = text.as_bytes();
        let mut from = span.start;
        let mut at = span.start;
        while let Some(index) = memchr::memchr2(b'{', b'}', &bytes[at..span.end]) {
            let brace = at + index;
            let (start, length) = match &bytes[brace..span.end] {
                [b'{', b'{' | b'%' | b'#', ..] | [b'}', b'}', ..] => (brace, 2),
                // A brace in front of a tag, the template's or one written here, would join it.
                [b'{', b'}', b'}', ..] => (brace, 3),
                [b'{'] => (brace, 1),
                // `upon` takes the last brace of a tag and one behind it for another closer.
                [b'}', ..] if brace == from => (brace, 1),
                [b'}', ..] if matches!(bytes[brace - 1], b'%' | b'#') => (brace - 1, 2),
                _ => {
                    at = brace + 1;
                    continue;
                }
            };
            self.copy(text, from..start);
            self.source.push_str("{{ \"");
            self.source.push_str(&text[start..start + length]);
            self.source.push_str("\" }}");
            at = start + length;
            from = at;
        }
        self.copy(text, from..span.end);
    }
}

/// Writes the source of a segment. `insertions` are sorted by offset.
pub(crate) fn generate(text: &str, chunks: &[Chunk], insertions: &[(usize, String)]) -> Generated {
    let mut generated = Generated::for_chunks(chunks);
    for chunk in chunks {
        match chunk {
            Chunk::Text(span) | Chunk::Raw(span) => generated.copy_text(text, span.clone()),
            Chunk::Silent { trim_before, trim_after, .. } => {
                generated.source.push_str(if *trim_before { "{#- " } else { "{# " });
                generated.source.push_str(if *trim_after { "-#}" } else { "#}" });
            }
            Chunk::Expression(tag) => generated.tag(text, tag, Delimiter::Expression, insertions),
            Chunk::Block(tag) => generated.tag(text, tag, Delimiter::Block, insertions),
        }
    }
    generated
}

/// Returns what a segment without tags always says.
pub(crate) fn constant(text: &str, chunks: &[Chunk]) -> Option<String> {
    let is_tag = |chunk: &Chunk| matches!(chunk, Chunk::Expression(_) | Chunk::Block(_));
    if chunks.iter().any(is_tag) {
        return None;
    }
    let mut whole = String::new();
    for chunk in chunks {
        match chunk {
            Chunk::Text(span) | Chunk::Raw(span) => whole.push_str(&text[span.clone()]),
            Chunk::Silent { trim_before: false, trim_after: false, .. } => {}
            _ => return None,
        }
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;

    /// The source for a text, and what `upon` makes of it.
    fn rendered(text: &str) -> (String, String) {
        let delimiters = crate::delimiters::Delimiters::default();
        let chunks = crate::lex::lex(text, 0, &delimiters).unwrap().chunks;
        let source = generate(text, &chunks, &[]).source;
        let dialect = Dialect::standard();
        let engine = &dialect.engine;
        let rendered = engine.compile(source.clone()).unwrap_or_else(|e| panic!("{source}: {e:#}"));
        let rendered = rendered.render(engine, upon::value! { a: 1 }).to_string().unwrap();
        (source, rendered)
    }

    #[test]
    fn braces_beside_tags_stay_braces() {
        for (text, expected) in [
            ("{{ a }}}", "1}"),
            ("{\"k\": {{ a }}}", "{\"k\": 1}"),
            ("{{ a }}}}", "1}}"),
            ("{% raw %}{{% endraw %}{{ a }}", "{1"),
            ("{{ a }}}{% raw %}{{% endraw %}{% if a %}{}}{% endif %}", "1}{{}}"),
            ("{}}", "{}}"),
            ("}{{ a }}}{% if a %}}{% endif %}}{# c #}}", "}1}}}}"),
            ("%{% if a %}}%}{% endif %}#{# c #}}#}-{{ a -}} }", "%}%}#}#}-1}"),
            ("{}}}{%raw%}{{{{%endraw%}}", "{}}}{{{}"),
        ] {
            let (source, found) = rendered(text);
            assert_eq!(found, expected, "{text} -> {source}");
        }
    }
}
