//! The line at fault, drawn below a message.

use std::fmt;

use crate::position::Position;

/// Characters of a line that are shown before and after the place.
const AROUND: usize = 60;

/// Draws a line of a template with a mark under the column.
pub(crate) fn draw(f: &mut fmt::Formatter<'_>, position: Position, line: &str) -> fmt::Result {
    let Position { line: number, column } = position;
    let number = number.to_string();
    let margin = " ".repeat(number.len());
    let at = column - 1;
    let from = at.saturating_sub(AROUND);
    let shown = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    let before: String = line.chars().skip(from).take(at - from).map(shown).collect();
    let after: String = line.chars().skip(at).take(AROUND).map(shown).collect();
    let cut = |is_cut| if is_cut { "..." } else { "" };
    let (head, tail) = (cut(from > 0), cut(line.chars().count() > at + AROUND));
    // A tab is as wide as the tab above it, and a wide character as two blanks.
    let pad: String = before.chars().map(blank).collect();
    let head_pad = " ".repeat(head.len());
    write!(f, "\n{margin} |\n{number} | {head}{before}{after}{tail}\n{margin} | {head_pad}{pad}^")
}

/// Returns blanks as wide as a character is on a screen.
fn blank(c: char) -> &'static str {
    match (c, unicode_width::UnicodeWidthChar::width(c)) {
        ('\t', _) => "\t",
        (_, None | Some(0)) => "",
        (_, Some(1)) => " ",
        _ => "  ",
    }
}
