//! Writes the tree of a Go template as templates.

use std::collections::BTreeSet;

use super::expression::{Scope, condition, pipeline, printf};
use super::tokens::{Mark, Token};
use super::tree::{Block, Branch, Fault, Node};

/// Variables that can be seen at one place: each is a block here.
const MAX_VARIABLES: usize = 90;

/// Characters of an action that a note repeats.
const MAX_SHOWN: usize = 100;

/// Writes one source, and what it defines.
pub(super) struct Writer<'w> {
    pub(super) source: &'w str,
    /// What a template of Go is called here.
    pub(super) rename: &'w dyn Fn(&str) -> String,
    pub(super) output: String,
    pub(super) faults: Vec<Fault>,
    /// The bodies of `define` and `block`.
    pub(super) defined: Vec<(String, String)>,
    /// Loops that are open.
    pub(super) loops: usize,
}

impl Writer<'_> {
    /// Writes nodes; returns how many `with` blocks stand for declarations among them.
    pub(super) fn nodes(&mut self, nodes: &[Node], scope: &mut Scope) {
        let mut declared = 0;
        for node in nodes {
            match node {
                Node::Text(span) => self.text(&self.source[span.clone()]),
                Node::Left(mark) => self.output.push_str(&self.source[mark.span.clone()]),
                Node::Comment(mark) => {
                    let text = self.source[mark.span.clone()].trim_matches(['{', '}', '-']).trim();
                    let text =
                        text.trim_start_matches("/*").trim_end_matches("*/").replace("#}", "# }");
                    self.tag("{#", &format!(" {} ", text.trim()), "#}", mark);
                }
                Node::Action(mark, tokens) => {
                    declared += usize::from(self.action(mark, tokens, scope));
                }
                Node::Block(block) => self.block(block, scope),
            }
        }
        if declared > 0 && self.output.ends_with('{') {
            // It would join the tag behind it.
            self.output.truncate(self.output.len() - 1);
            self.output.push_str("{% raw %}{{% endraw %}");
        }
        (0..declared).for_each(|_| self.output.push_str("{% endwith %}"));
    }

    /// Writes text so that nothing in it is taken for a tag, a role line or front matter.
    fn text(&mut self, text: &str) {
        if self.output.is_empty() && text.starts_with("---") {
            self.output.push_str("{# no front matter #}");
        }
        let mut rest = text;
        while let Some(index) = ["{%", "{#"].iter().filter_map(|opener| rest.find(opener)).min() {
            let (before, opener) = rest.split_at(index);
            self.output.push_str(before);
            self.output.extend(["{% raw %}", &opener[..2], "{% endraw %}"]);
            rest = &opener[2..];
        }
        self.output.push_str(rest);
    }

    fn tag(&mut self, open: &str, inside: &str, close: &str, mark: &Mark) {
        let [before, after] =
            [mark.trim_before, mark.trim_after].map(|trim| if trim { "-" } else { "" });
        self.output.extend([open, before, inside, after, close]);
    }

    fn block_tag(&mut self, inside: &str, trim_before: bool, trim_after: bool) {
        let mark = Mark { trim_before, trim_after, ..Mark::default() };
        self.tag("{%", &format!(" {inside} "), "%}", &mark);
    }

    /// Leaves an action as it is, which does not compile, and says why.
    fn leave(&mut self, mark: &Mark, why: &str) {
        let action = &self.source[mark.span.clone()];
        self.output.push_str(action);
        let cut = action.char_indices().nth(MAX_SHOWN).map(|(end, _)| &action[..end]);
        let shown = cut.map_or_else(|| action.to_owned(), |cut| format!("{cut}..."));
        self.faults.push((mark.span.start, format!("{shown}: {why}")));
    }

    /// Writes an action; returns whether it opened a `with` that the body has to close.
    fn action(&mut self, mark: &Mark, tokens: &[Token], scope: &mut Scope) -> bool {
        match tokens {
            [Token::Word(word), name, data @ ..] if word == "template" => {
                self.include(mark, name, data, scope);
                false
            }
            [Token::Word(word), Token::Text(format), values @ ..]
                if word == "printf" && !values.contains(&Token::Sign("|")) =>
            {
                match printf(format, values, scope) {
                    Some(parts) => self.parts(mark, &parts),
                    None => self.leave(mark, "there is no formatting of numbers and columns"),
                }
                false
            }
            [Token::Variable(..), Token::Sign(":="), ..]
                if scope.variables.len() >= MAX_VARIABLES =>
            {
                let why = format!("more than {MAX_VARIABLES} variables are declared");
                self.leave(mark, &why);
                false
            }
            [Token::Variable(name, path), Token::Sign(":="), value @ ..] if path.is_empty() => {
                match pipeline(value, scope, false) {
                    Ok(value) => {
                        let name = fresh(name, scope);
                        self.block_tag(
                            &format!("with {value} as {name}"),
                            mark.trim_before,
                            mark.trim_after,
                        );
                        true
                    }
                    Err(why) => {
                        self.leave(mark, &why);
                        false
                    }
                }
            }
            [Token::Variable(..), Token::Sign("="), ..] => {
                self.leave(mark, "a variable keeps its value here");
                false
            }
            tokens => {
                match pipeline(tokens, scope, false) {
                    Ok(value) => self.tag("{{", &format!(" {value} "), "}}", mark),
                    Err(why) => self.leave(mark, &why),
                }
                false
            }
        }
    }

    /// Writes the text and the values of a `printf`.
    fn parts(&mut self, mark: &Mark, parts: &[String]) {
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.iter().enumerate() {
            let trim_before = mark.trim_before && index == 0;
            let trim_after = mark.trim_after && index == last;
            let mark = Mark { trim_before, trim_after, ..Mark::default() };
            self.tag("{{", &format!(" {part} "), "}}", &mark);
        }
    }

    fn include(&mut self, mark: &Mark, name: &Token, data: &[Token], scope: &Scope) {
        let Token::Text(name) = name else {
            return self.leave(mark, "the name of an included template is a string");
        };
        let name = (self.rename)(name);
        let sees_all = match data {
            [] => true,
            [Token::Field(path)] => path.is_empty() && scope.dot.is_empty(),
            [Token::Variable(name, path)] => name.is_empty() && path.is_empty(),
            _ => false,
        };
        // What is included in a `with` cannot see all there is, nor always in a loop.
        if sees_all && !scope.variables.is_empty() {
            if data.is_empty() {
                let inside = format!("include \"{name}\" with {{}}");
                return self.block_tag(&inside, mark.trim_before, mark.trim_after);
            }
            let why = "where a block or a variable is open, say what it is to see: \
                       '{% include \"..\" with {\"Name\": Name} %}'";
            return self.leave(mark, why);
        }
        if sees_all {
            return self.block_tag(
                &format!("include \"{name}\""),
                mark.trim_before,
                mark.trim_after,
            );
        }
        match pipeline(data, scope, false) {
            Ok(data) => {
                let inside = format!("include \"{name}\" with {data}");
                self.block_tag(&inside, mark.trim_before, mark.trim_after);
            }
            Err(why) => self.leave(mark, &why),
        }
    }

    fn block(&mut self, block: &Block, scope: &mut Scope) {
        match block.keyword.as_str() {
            "if" => self.if_block(block, scope),
            "range" => self.range(block, scope),
            "with" => self.with(block, scope),
            _ => self.define(block, scope),
        }
    }

    fn body(&mut self, branch: &Branch, scope: &Scope) {
        self.nodes(&branch.body, &mut scope.clone());
    }

    fn if_block(&mut self, block: &Block, scope: &Scope) {
        for (index, branch) in block.branches.iter().enumerate() {
            let Branch { mark, tokens, .. } = branch;
            let tokens = match tokens.as_slice() {
                [Token::Word(word), rest @ ..] if index > 0 && word == "if" => rest,
                tokens => tokens,
            };
            let keyword = match (index, tokens) {
                (0, _) => "if",
                (_, []) => "else",
                _ => "else if",
            };
            if tokens.is_empty() && index > 0 {
                self.block_tag(keyword, mark.trim_before, mark.trim_after);
            } else {
                match condition(tokens, scope) {
                    Ok(value) => {
                        let inside = format!("{keyword} {value}");
                        self.block_tag(&inside, mark.trim_before, mark.trim_after);
                    }
                    Err(why) => self.leave(mark, &why),
                }
            }
            self.body(branch, scope);
        }
        self.block_tag("endif", block.end.trim_before, block.end.trim_after);
    }

    fn range(&mut self, block: &Block, scope: &Scope) {
        let Some((first, others)) = block.branches.split_first() else { return };
        let (names, list) = declared(&first.tokens);
        let list = match pipeline(list, scope, false) {
            Ok(list) if list.starts_with(|c: char| c.is_ascii_digit()) => {
                Err("a loop goes over a list or a map, not up to a number".to_owned())
            }
            Ok(list) if others.is_empty() => Ok((list.clone(), list)),
            // With an 'else' the list may be absent, as in Go.
            Ok(list) => pipeline(declared(&first.tokens).1, scope, true).map(|test| (test, list)),
            why => why.map(|list| (list.clone(), list)),
        };
        let (test, list) = match list {
            Ok(list) => list,
            Err(why) => return self.leave_block(block, &why),
        };
        let mut inner = scope.clone();
        if self.loops > 0 {
            // The index of an outer loop cannot be seen in an inner one.
            inner.variables.iter_mut().for_each(|(_, here)| {
                *here = here.take().filter(|here| here != "loop.index");
            });
        }
        let item = names.last().map_or_else(|| "item".to_owned(), |name| (*name).to_owned());
        let item = fresh(&item, &mut inner);
        if let [index, _] = names[..] {
            inner.variables.push((index.to_owned(), Some("loop.index".to_owned())));
            let note = "if it goes over a map, write '{% for key, value in map %}'";
            self.faults
                .push((first.mark.span.start, format!("check the loop over '{list}': {note}")));
        }
        inner.dot.clone_from(&item);
        let has_else = !others.is_empty();
        if has_else {
            self.block_tag(&format!("if {test}"), first.mark.trim_before, false);
        }
        let trim_before = first.mark.trim_before && !has_else;
        self.block_tag(&format!("for {item} in {list}"), trim_before, first.mark.trim_after);
        self.loops += 1;
        self.body(first, &inner);
        self.loops -= 1;
        self.close(block, others, "endfor", scope);
    }

    fn with(&mut self, block: &Block, scope: &Scope) {
        let Some((first, others)) = block.branches.split_first() else { return };
        let (names, value) = declared(&first.tokens);
        let both = pipeline(value, scope, true)
            .and_then(|test| pipeline(value, scope, false).map(|value| (test, value)));
        let (test, value) = match both {
            Ok(both) => both,
            Err(why) => return self.leave_block(block, &why),
        };
        let mut inner = scope.clone();
        let name = fresh(names.last().copied().unwrap_or("it"), &mut inner);
        inner.dot.clone_from(&name);
        // In Go the block is left out when the value is empty; here that is the work of an 'if'.
        self.block_tag(&format!("if {test}"), first.mark.trim_before, false);
        self.block_tag(&format!("with {value} as {name}"), false, first.mark.trim_after);
        self.body(first, &inner);
        if others.is_empty() {
            self.block_tag("endwith", block.end.trim_before, false);
            self.block_tag("endif", false, block.end.trim_after);
        } else {
            self.close(block, others, "endwith", scope);
        }
    }

    /// Closes the inner of two blocks, and writes the `else` of the outer one.
    fn close(&mut self, block: &Block, others: &[Branch], inner: &str, scope: &Scope) {
        let end = &block.end;
        let Some(other) = others.first() else {
            return self.block_tag(inner, end.trim_before, end.trim_after);
        };
        if !other.tokens.is_empty() {
            let why = "'else with' and 'else if' belong to an 'if' here".to_owned();
            self.faults.push((other.mark.span.start, why));
        }
        self.block_tag(inner, other.mark.trim_before, false);
        self.block_tag("else", false, other.mark.trim_after);
        self.body(other, scope);
        self.block_tag("endif", end.trim_before, end.trim_after);
    }

    /// Leaves a block as it is.
    fn leave_block(&mut self, block: &Block, why: &str) {
        let Some(first) = block.branches.first() else { return };
        self.leave(&first.mark, why);
        // One that has no end goes up to the end of the source.
        let from = first.mark.span.end;
        let to = if block.end.span.end > from { block.end.span.end } else { self.source.len() };
        self.output.push_str(&self.source[from..to]);
    }

    fn define(&mut self, block: &Block, scope: &Scope) {
        let Some(first) = block.branches.first() else { return };
        let [Token::Text(name), data @ ..] = first.tokens.as_slice() else {
            return self.leave_block(block, "a definition has a string for its name");
        };
        let outer = std::mem::take(&mut self.output);
        let loops = std::mem::take(&mut self.loops);
        self.nodes(&first.body, &mut Scope::default());
        self.loops = loops;
        let body = std::mem::replace(&mut self.output, outer);
        self.defined.push(((self.rename)(name), body));
        if block.keyword == "block" {
            let mark = Mark { trim_after: block.end.trim_after, ..first.mark.clone() };
            self.include(&mark, &first.tokens[0], data, scope);
        } else if first.mark.trim_before || block.end.trim_after {
            let (trim_before, trim_after) = (first.mark.trim_before, block.end.trim_after);
            self.tag("{#", "", "#}", &Mark { trim_before, trim_after, ..Mark::default() });
        }
    }
}

/// Splits `$a, $b := pipeline`.
fn declared(tokens: &[Token]) -> (Vec<&str>, &[Token]) {
    match tokens {
        [
            Token::Variable(a, _),
            Token::Sign(","),
            Token::Variable(b, _),
            Token::Sign(":="),
            rest @ ..,
        ] => (vec![a, b], rest),
        [Token::Variable(a, _), Token::Sign(":="), rest @ ..] => (vec![a], rest),
        tokens => (Vec::new(), tokens),
    }
}

/// Declares a variable under a name that no other one hides.
fn fresh(name: &str, scope: &mut Scope) -> String {
    let used: BTreeSet<_> =
        scope.variables.iter().filter_map(|(_, here)| here.as_deref()).collect();
    let name = if name.is_empty() || name == "_" { "item" } else { name };
    let base =
        if crate::expression::is_keyword(name) { format!("{name}_") } else { name.to_owned() };
    let taken = |name: &str| used.contains(name);
    // One more name than there are taken ones: one of them is free.
    let mut names = (2..=used.len() + 2).map(|n| format!("{base}{n}"));
    let here = if taken(&base) {
        names.find(|name| !taken(name)).unwrap_or_default()
    } else {
        base.clone()
    };
    scope.variables.push((name.to_owned(), Some(here.clone())));
    here
}
