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

/// The places of offsets that come in order; linear in the text, however many there are.
pub(crate) struct Positions<'t> {
    text: &'t str,
    offset: usize,
    position: Position,
}

impl<'t> Positions<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, offset: 0, position: Position { line: 1, column: 1 } }
    }

    /// Returns the place of the character at an offset, which is not before the last one.
    pub(crate) fn next_at(&mut self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset).max(self.offset);
        let Position { line, column } =
            Position::of(&self.text[self.offset..], offset - self.offset);
        let column = if line == 1 { self.position.column + column - 1 } else { column };
        self.position = Position { line: self.position.line + line - 1, column };
        self.offset = offset;
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_order_are_the_same_as_one_by_one() {
        let text = "a\n\u{4e2d}\u{6587}{{ x\r\n\ny";
        let mut places = Positions::new(text);
        for (offset, _) in text.char_indices() {
            assert_eq!(places.next_at(offset), Position::of(text, offset), "{offset}");
        }
        assert_eq!(places.next_at(text.len() + 1), Position::of(text, text.len()));
    }

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
