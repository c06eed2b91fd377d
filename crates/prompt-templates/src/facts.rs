//! What a template refers to: variables, includes, and the blocks that bind names.

use crate::lex::Span;

/// What a template refers to.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) uses: Vec<Use>,
    pub(crate) includes: Vec<Include>,
    /// The bodies of `for` and `with` blocks.
    pub(crate) scopes: Vec<Scope>,
    /// Arguments that calls left out, and where they go.
    pub(crate) insertions: Vec<(usize, String)>,
}

/// The body of a block, and the variables that it has there.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) span: Span,
    pub(crate) locals: Vec<String>,
}

/// A path such as `task.files.0`.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// The whole path.
    pub(crate) span: Span,
    /// Its first name.
    pub(crate) root: Span,
    /// Names a variable of an enclosing `for` or `with`.
    pub(crate) is_local: bool,
}

/// A name or an index of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member<'t> {
    pub(crate) name: &'t str,
    /// With the dot in front of it.
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Include {
    pub(crate) name: String,
    pub(crate) offset: usize,
    /// `include .. with`: the template sees nothing but the value it is given.
    pub(crate) is_isolated: bool,
    /// Variables of the enclosing `for` and `with` blocks, which the template sees as well.
    pub(crate) locals: Vec<String>,
}

impl Use {
    /// Returns the first name.
    pub(crate) fn root<'t>(&self, text: &'t str) -> &'t str {
        &text[self.root.clone()]
    }

    /// Returns whether a member behind the first name may be absent.
    pub(crate) fn has_optional_member(&self, text: &str) -> bool {
        text[self.root.end..self.span.end.max(self.root.end)].contains('?')
    }

    /// Returns the names and indices, which are looked at one by one where something is wrong.
    pub(crate) fn members<'t>(&self, text: &'t str) -> Vec<Member<'t>> {
        let mut members = Vec::new();
        let mut at = self.span.start;
        // Where the dot in front of the member is.
        let mut dot = at;
        for part in text[self.span.clone()].split('.') {
            let written = part.strip_suffix('?').unwrap_or(part);
            let name = written.trim();
            if !name.is_empty() {
                let end = at + written.trim_end().len();
                members.push(Member { name, span: dot..end });
            }
            dot = at + written.len();
            at += part.len() + 1;
        }
        members
    }
}
