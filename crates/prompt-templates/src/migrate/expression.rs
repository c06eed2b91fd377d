//! Writes the pipelines of Go as expressions.

use super::tokens::Token;

/// Brackets in brackets, as templates here have them at most.
const MAX_DEPTH: usize = 64;

/// Arguments of one call; some are written as calls in calls.
const MAX_ARGUMENTS: usize = 32;

/// Bytes of one expression. `eq a b c` repeats its first argument, so nesting it multiplies.
const MAX_LENGTH: usize = 10_000;

/// What the names of an expression stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// What the dot is; empty for the data itself.
    pub(super) dot: String,
    /// The variables that can be seen, the newest last: their name in Go, and what it is here.
    pub(super) variables: Vec<(String, Option<String>)>,
}

/// Why an expression has to be written by hand.
pub(super) type Manual = String;

/// Writes a pipeline. In a condition a field may be absent, as in Go.
pub(super) fn pipeline(
    tokens: &[Token],
    scope: &Scope,
    is_condition: bool,
) -> Result<String, Manual> {
    let mut reader = Reader { tokens, at: 0, scope, is_condition, depth: 0 };
    let written = reader.pipeline()?;
    match reader.peek() {
        None => Ok(written),
        Some(_) => Err("it has a part that is no pipeline".to_owned()),
    }
}

/// Writes the condition of an `if`.
pub(super) fn condition(tokens: &[Token], scope: &Scope) -> Result<String, String> {
    match tokens {
        [Token::Word(word), rest @ ..] if word == "not" && !rest.contains(&Token::Sign("|")) => {
            pipeline(rest, scope, true).map(|value| format!("not {value}"))
        }
        tokens => pipeline(tokens, scope, true),
    }
}

/// Cuts a format into strings and values, if it has nothing but `%s`, `%v`, `%d` and `%%`.
pub(super) fn printf(format: &str, values: &[Token], scope: &Scope) -> Option<Vec<String>> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut values = values.iter();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('%')) => text.push('%'),
            ('%', Some('s' | 'v' | 'd')) => {
                if !text.is_empty() {
                    parts.push(literal(&std::mem::take(&mut text)).ok()?);
                }
                parts.push(pipeline(std::slice::from_ref(values.next()?), scope, false).ok()?);
            }
            ('%', _) => return None,
            _ => text.push(c),
        }
    }
    if !text.is_empty() {
        parts.push(literal(&text).ok()?);
    }
    values.next().is_none().then_some(parts)
}

struct Reader<'r> {
    tokens: &'r [Token],
    at: usize,
    scope: &'r Scope,
    is_condition: bool,
    /// Brackets that are open.
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn pipeline(&mut self) -> Result<String, Manual> {
        let mut value = self.command(None)?;
        while self.take_sign("|") {
            value = self.command(Some(value))?;
        }
        Ok(value)
    }

    /// A function with its arguments, or one operand. The value of the command before it is its last
    /// argument.
    fn command(&mut self, piped: Option<String>) -> Result<String, Manual> {
        if let Some(Token::Word(word)) = self.peek()
            && !matches!(word.as_str(), "true" | "false")
        {
            let name = word.clone();
            self.at += 1;
            let mut arguments = Vec::new();
            while !matches!(self.peek(), None | Some(Token::Sign("|" | ")"))) {
                arguments.push(self.operand()?);
            }
            arguments.extend(piped);
            if arguments.len() > MAX_ARGUMENTS {
                return Err(format!("it has more than {MAX_ARGUMENTS} arguments"));
            }
            return match call(&name, &arguments) {
                Ok(written) if written.len() > MAX_LENGTH => {
                    Err(format!("it would have more than {MAX_LENGTH} bytes here"))
                }
                written => written,
            };
        }
        let operand = self.operand()?;
        match (self.peek(), piped) {
            (None | Some(Token::Sign("|" | ")")), None) => Ok(operand),
            (Some(Token::Other), _) => Err("it has a chain that templates do not have".to_owned()),
            _ => Err("a method or a variable is called with arguments".to_owned()),
        }
    }

    fn operand(&mut self) -> Result<String, Manual> {
        let Some(token) = self.peek().cloned() else {
            return Err("an operand is missing".to_owned());
        };
        self.at += 1;
        match token {
            Token::Field(names) => self.path(&self.scope.dot, &names),
            Token::Variable(name, names) if name.is_empty() => self.path("", &names),
            Token::Variable(name, names) => {
                let known = self.scope.variables.iter().rev().find(|(known, _)| *known == name);
                match known {
                    Some((_, Some(here))) => self.path(here, &names),
                    Some((_, None)) => {
                        Err(format!("'${name}' counts an outer loop, which an inner one hides"))
                    }
                    None => Err(format!("'${name}' is not declared")),
                }
            }
            Token::Number(number) => Ok(number),
            Token::Text(text) => literal(&text),
            Token::Sign("(") => {
                if self.depth >= MAX_DEPTH {
                    return Err(format!("it nests deeper than {MAX_DEPTH}"));
                }
                self.depth += 1;
                let inner = self.pipeline()?;
                self.depth -= 1;
                if self.take_sign(")") { Ok(inner) } else { Err("')' is missing".to_owned()) }
            }
            Token::Word(word) if matches!(word.as_str(), "true" | "false") => Ok(word),
            Token::Word(word) if word == "nil" => Err("there is no 'nil'".to_owned()),
            Token::Word(word) => call(&word, &[]),
            Token::Sign(sign) => Err(format!("'{sign}' stands where an operand should")),
            Token::Other => {
                Err("it has a literal or a chain that templates do not have".to_owned())
            }
        }
    }

    fn path(&self, start: &str, names: &[String]) -> Result<String, Manual> {
        if start.is_empty() && names.is_empty() {
            return Err("the dot is the whole data here, which has no name".to_owned());
        }
        let mut path = start.to_owned();
        for name in names {
            if name.is_empty() || crate::expression::is_keyword(name) {
                return Err(format!("'{name}' cannot be a name"));
            }
            if self.is_condition {
                path.push_str("?.");
            } else if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        Ok(path)
    }
}

/// Writes a string.
fn literal(text: &str) -> Result<String, Manual> {
    if text.ends_with('\\') {
        return Err("a string cannot end with a back-slash".to_owned());
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err("a string has a control character".to_owned());
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{}\"", escaped.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")))
}

/// Writes a call of a function of Go, or of those that most people add to it.
fn call(name: &str, arguments: &[String]) -> Result<String, Manual> {
    let joined = arguments.join(", ");
    match (name, arguments) {
        ("and" | "or", [_, .., _]) => Ok(fold(name, arguments)),
        ("and" | "or" | "print", [only]) => Ok(only.clone()),
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            let equal: Vec<_> =
                others.iter().map(|other| format!("eq({first}, {other})")).collect();
            Ok(fold("or", &equal))
        }
        ("ne" | "lt" | "le" | "gt" | "ge", [_, _]) | ("len", [_]) => {
            Ok(format!("{name}({joined})"))
        }
        ("index", [of, keys @ ..]) if !keys.is_empty() => index(of, keys),
        ("printf", [format, value])
            if matches!(format.as_str(), "\"%s\"" | "\"%v\"" | "\"%d\"") =>
        {
            Ok(value.clone())
        }
        ("default", [fallback, value]) => Ok(format!("default({}, {fallback})", optional(value))),
        ("join", [separator, list]) => Ok(format!("join({list}, {separator})")),
        ("contains", [part, whole]) => Ok(format!("contains({whole}, {part})")),
        ("indent", [count, text]) => Err(format!(
            "'indent' of Go indents the first line too; '{text} | indent: {count}' does not"
        )),
        ("toJson" | "mustToJson", [value]) => Ok(format!("json({value})")),
        ("not", _) => Err("'not' can only stand first in an 'if'".to_owned()),
        ("printf" | "print" | "println", _) => {
            Err("there is no formatting of numbers and columns; give the text as data".to_owned())
        }
        ("html" | "js" | "urlquery", _) => {
            Err(format!("'{name}' escapes for the web, which a prompt does not need"))
        }
        ("call" | "slice" | "index", _) => Err(format!("there is no '{name}' of this form")),
        ("break" | "continue", _) => Err(format!("there is no '{name}' in loops")),
        (name, _) => {
            Err(format!("the function '{name}' is not built in; add one with 'Builder::function'"))
        }
    }
}

fn fold(name: &str, arguments: &[String]) -> String {
    let Some((last, others)) = arguments.split_last() else { return String::new() };
    let mut folded = last.clone();
    for argument in others.iter().rev() {
        folded = format!("{name}({argument}, {folded})");
    }
    folded
}

fn index(of: &str, keys: &[String]) -> Result<String, Manual> {
    let mut path = of.to_owned();
    for key in keys {
        let name = key.trim_matches('"');
        let is_name = name.chars().all(|c| c == '_' || c.is_alphanumeric())
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && key.starts_with('"');
        let is_path = of.chars().all(|c| matches!(c, '_' | '.' | '?') || c.is_alphanumeric());
        if !is_path || !(is_name || key.chars().all(|c| c.is_ascii_digit())) {
            return Err("an index or a key has to be written out: 'list.0', 'map.key'".to_owned());
        }
        path.push('.');
        path.push_str(name);
    }
    Ok(path)
}

/// Returns a path whose members may be absent.
fn optional(path: &str) -> String {
    let is_path = path.chars().all(|c| matches!(c, '_' | '.') || c.is_alphanumeric());
    let is_word = path.starts_with(|c: char| c == '_' || c.is_alphabetic());
    if is_path && is_word { format!("?.{}", path.replace('.', "?.")) } else { path.to_owned() }
}
