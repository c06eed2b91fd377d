/// A place in a text: line and column from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    /// Returns the place of the character at a byte offset. Linear in the offset.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = &text[..text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a\n\u{4e2d}\u{6587}{{ x\r\ny";
        let place = |what| {
            let Position { line, column } = Position::of(text, text.find(what).unwrap());
            (line, column)
        };
        assert_eq!(place("a"), (1, 1));
        assert_eq!(place("{{"), (2, 3));
        assert_eq!(place("y"), (3, 1));
    }
}
