//! Bytes of a file to lessons, faults and counts; in one go or bit by bit.

use std::sync::Arc;

use crate::fault::{Fault, FaultKind, LineError};
use crate::lesson::Lesson;
use crate::options::{Mode, Options};
use crate::parse::Parser;
use crate::plain::Plain;
use crate::record::Record;
use crate::report::{Summary, Tally};
use crate::scan::{Line, Scanner};
use crate::text;

/// Reads what it is fed as the lines of one file.
///
/// The law: fed in pieces, with [`settle`](Self::settle) after each, it ends with the same
/// lessons, faults and counts as fed whole; where that cannot be (a last line that was a lesson
/// has become another), it says so, and the file has to be read again.
pub(crate) struct Intake {
    scanner: Scanner,
    lines: Lines,
    /// The last line, which has no end yet, as it was read at the last settling.
    tail: Option<Tail>,
    has_changed_tail: bool,
}

/// What has been read up to the last line end.
pub(crate) struct Lines {
    pub(crate) parser: Parser,
    pub(crate) tally: Tally,
    mode: Mode,
    max_faults: usize,
    /// Whether the line before this was UTF-16, whose line end is two bytes.
    pub(crate) after_utf16: bool,
}

struct Tail {
    number: u64,
    /// `None` if it was no lesson.
    raw: Option<Box<str>>,
    tally: Tally,
}

impl Intake {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            scanner: Scanner::new(options.max_line_bytes),
            lines: Lines::new(options),
            tail: None,
            has_changed_tail: false,
        }
    }

    /// Goes on where the lines before were read by others: they counted so many lines and bytes,
    /// and `last` is the state behind them.
    pub(crate) fn go_on(options: &Options, number: u64, offset: u64, last: Lines) -> Self {
        let mut intake = Self::new(options);
        intake.scanner.start_at(number, offset);
        intake.lines = last;
        intake
    }

    /// Takes bytes and hands on the lessons of the lines that end in them.
    ///
    /// In strict mode the first fault is the error; the intake is of no use after it.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut on_lesson: impl FnMut(Arc<Lesson>),
        mut on_fault: impl FnMut(&Fault),
    ) -> Result<(), Fault> {
        let Self { scanner, lines, tail, has_changed_tail } = self;
        scanner.feed(bytes, |line| {
            let known = tail.take_if(|tail| tail.number == line.number).and_then(|tail| tail.raw);
            match lines.examine(line) {
                Some(Ok((record, raw))) => {
                    let lesson = Lesson::of(record, raw);
                    lines.tally.record();
                    match known {
                        Some(raw) if *raw == *lesson.raw() => {}
                        known => {
                            *has_changed_tail |= known.is_some();
                            on_lesson(Arc::new(lesson));
                        }
                    }
                }
                Some(Err(fault)) => {
                    *has_changed_tail |= known.is_some();
                    on_fault(&fault);
                    lines.fault(fault)?;
                }
                None => *has_changed_tail |= known.is_some(),
            }
            Ok(())
        })
    }

    /// Takes the last line as it is, for now: call it when there are no more bytes for the moment.
    pub(crate) fn settle(
        &mut self,
        on_lesson: impl FnOnce(Arc<Lesson>),
        on_fault: impl FnOnce(&Fault),
    ) -> Result<(), Fault> {
        let known = self.tail.take().and_then(|tail| tail.raw);
        let Some(line) = self.scanner.tail() else { return Ok(()) };
        let (before, after_utf16) = (self.lines.tally.clone(), self.lines.after_utf16);
        let mut raw = None;
        let read = match self.lines.examine(line) {
            Some(Ok((record, text))) => {
                let lesson = Lesson::of(record, text);
                self.lines.tally.record();
                raw = Some(Box::from(lesson.raw()));
                if known != raw {
                    on_lesson(Arc::new(lesson));
                }
                Ok(())
            }
            Some(Err(fault)) => {
                on_fault(&fault);
                self.lines.fault(fault)
            }
            None => Ok(()),
        };
        self.has_changed_tail |= known.is_some() && known != raw;
        self.lines.after_utf16 = after_utf16;
        let tally = std::mem::replace(&mut self.lines.tally, before);
        self.tail = Some(Tail { number: line.number, raw, tally });
        read
    }

    /// Returns whether a last line that was handed on as a lesson has turned out to be another.
    pub(crate) fn has_changed_tail(&self) -> bool {
        self.has_changed_tail
    }

    /// Returns whether the last byte so far was no line end.
    pub(crate) fn is_inside_line(&self) -> bool {
        self.scanner.tail().is_some()
    }

    /// Counts from here on only; places in the file stay right.
    pub(crate) fn forget_counts(&mut self) {
        self.lines.tally = Tally::default();
        if let Some(tail) = &mut self.tail {
            tail.tally = Tally::default();
        }
    }

    pub(crate) fn summary(&mut self) -> Summary {
        self.tail.as_mut().map_or(&mut self.lines.tally, |tail| &mut tail.tally).summary()
    }
}

impl Lines {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            parser: Parser::new(),
            tally: Tally::default(),
            mode: options.mode,
            max_faults: options.max_faults,
            after_utf16: false,
        }
    }

    /// Parses the line that a text begins with and returns how long it is, if it is as most are: it
    /// has a line end right behind it and no blanks around it.
    #[inline]
    pub(crate) fn examine_plain(&mut self, plain: &mut Plain<'_>) -> Option<usize> {
        let len = self.parser.fast.parse_first(plain)?;
        let end = plain.line.as_bytes().get(len..).unwrap_or_default();
        if !end.starts_with(b"\n") && !end.starts_with(b"\r\n") {
            return None;
        }
        // Behind UTF-16 a line begins with NUL.
        self.after_utf16 = false;
        Some(len)
    }

    /// Returns the record and the text of a line, or its fault; `None` if it is blank.
    pub(crate) fn examine<'a>(
        &mut self,
        line: Line<'a>,
    ) -> Option<Result<(Record<'a>, &'a str), Fault>> {
        let is_after_utf16 = std::mem::take(&mut self.after_utf16);
        let mut bytes = line.bytes;
        if is_after_utf16 {
            bytes = bytes.strip_prefix(b"\0").unwrap_or(bytes);
        }
        let mut bytes = text::trim(bytes);
        let error = if line.is_too_long {
            bytes = text::without_cut_end(bytes);
            LineError::new(FaultKind::TooLong, "the line is over the cap")
        } else if bytes.is_empty() {
            return None;
        } else {
            match self.parser.parse(bytes, line.terminated) {
                Ok(parsed) => return Some(Ok(parsed)),
                Err(error) => error,
            }
        };
        self.after_utf16 = error.kind == FaultKind::Utf16;
        Some(Err(Fault::new(line.number, line.offset, bytes, error)))
    }

    pub(crate) fn fault(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.mode == Mode::Strict {
            return Err(fault);
        }
        self.tally.fault(fault, self.max_faults);
        Ok(())
    }
}
