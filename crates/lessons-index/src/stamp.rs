//! Times of a line.

use jiff::Timestamp;

/// Is a time as seconds and nanoseconds, which are ordered as times are.
pub(crate) type Parts = (i64, i32);

/// Is no time, which comes before all others.
pub(crate) const NONE: Parts = (i64::MIN, 0);

/// How Go writes a time that was never set.
const NEVER: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Parses a time; the one that was never set is `None`.
pub(crate) fn parse(text: &str) -> Result<Option<Timestamp>, jiff::Error> {
    parse_parts(text).map(from_parts)
}

/// Parses a time to its parts.
pub(crate) fn parse_parts(text: &str) -> Result<Parts, jiff::Error> {
    match parse_utc(text.as_bytes()) {
        Some(time) => Ok(time),
        None => Ok(parts(known(text.parse()?))),
    }
}

/// Returns a time, unless it is the one that was never set.
pub(crate) fn known(time: Timestamp) -> Option<Timestamp> {
    (time != NEVER).then_some(time)
}

/// Parses the common form `2026-01-31T09:30:00.123Z`, from 1970 on; `None` for every other.
fn parse_utc(text: &[u8]) -> Option<Parts> {
    let (time, len) = Day::default().parse(text)?;
    (len == text.len()).then_some(time)
}

/// Parses times, and remembers the day of the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Day {
    date: [u8; DATE],
    /// Its first second.
    start: i64,
}

/// As long as `2026-01-31T`, and `2026-01-31T09:30:00` and one byte more.
const DATE: usize = 11;
const HEAD: usize = DATE + 9;

impl Default for Day {
    fn default() -> Self {
        Self { date: *b"1970-01-01T", start: 0 }
    }
}

impl Day {
    /// Parses a time in the common form, with which some bytes begin, and returns how long it is.
    #[expect(clippy::inline_always, reason = "the result stays in registers")]
    #[inline(always)]
    pub(crate) fn parse(&mut self, text: &[u8]) -> Option<(Parts, usize)> {
        let head = text.first_chunk::<HEAD>()?;
        let (date, clock) = head.split_first_chunk::<DATE>()?;
        if *date != self.date {
            *self = Self::of(*date)?;
        }
        let seconds = self.start + clock_seconds(*clock.first_chunk()?)?;
        if head[HEAD - 1] == b'Z' {
            return Some(((seconds, 0), HEAD));
        }
        let (nanos, len) = fraction(&text[HEAD - 1..])?;
        Some(((seconds, nanos), HEAD - 1 + len))
    }

    fn of(date: [u8; DATE]) -> Option<Self> {
        let mut is_wrong = false;
        for (at, wanted) in [(4, b'-'), (7, b'-'), (10, b'T')] {
            is_wrong |= date[at] != wanted;
        }
        for at in [0, 1, 2, 3, 5, 6, 8, 9] {
            is_wrong |= !date[at].is_ascii_digit();
        }
        if is_wrong {
            return None;
        }
        let two = |at: usize| i64::from(date[at] - b'0') * 10 + i64::from(date[at + 1] - b'0');
        let (year, month, day) = (two(0) * 100 + two(2), two(5), two(8));
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days_in_month = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i64::from(is_leap),
            _ => return None,
        };
        // The parts of a time before 1970 have to have one sign, and the last one there is comes
        // in the year 9999.
        if !(1..=days_in_month).contains(&day) || !(1970..9999).contains(&year) {
            return None;
        }
        Some(Self { date, start: days(year, month, day) * 86_400 })
    }
}

/// Returns how long it is since midnight at a time such as `09:30:00`.
#[inline]
fn clock_seconds(clock: [u8; 8]) -> Option<i64> {
    // What is added takes each byte over the largest that is right to the upper bit; the lowest
    // one that is over is seen, whatever it carries to those above.
    const MIDNIGHT: u64 = u64::from_le_bytes(*b"00:00:00");
    const OVER: u64 = u64::from_le_bytes([118, 118, 127, 118, 118, 127, 118, 118]);
    let digits = u64::from_le_bytes(clock) ^ MIDNIGHT;
    let is_wrong = (digits | digits.wrapping_add(OVER)) & 0x8080_8080_8080_8080 != 0;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let [hour, minute, second] = [0, 24, 48].map(|at| (pairs >> at & 0xFF).cast_signed());
    let is_right = !is_wrong && hour <= 23 && minute <= 59 && second <= 59;
    is_right.then_some((hour * 60 + minute) * 60 + second)
}

/// Parses `.123Z` to nanoseconds, and returns how long it is.
fn fraction(text: &[u8]) -> Option<(i32, usize)> {
    let (b'.', text) = text.split_first()? else { return None };
    let mut nanos = 0;
    for (at, byte) in text.iter().take(10).enumerate() {
        match byte {
            b'0'..=b'9' if at < 9 => nanos = nanos * 10 + i32::from(byte - b'0'),
            b'Z' if at > 0 => {
                let missing = u32::try_from(9 - at).expect("at most nine");
                return Some((nanos * 10_i32.pow(missing), at + 2));
            }
            _ => return None,
        }
    }
    None
}

/// Counts the days from 1970-01-01 in the Gregorian calendar, with years that begin in March so
/// that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the parts by which times are ordered; a missing time comes before all others.
pub(crate) fn parts(time: Option<Timestamp>) -> Parts {
    time.map_or(NONE, |time| (time.as_second(), time.subsec_nanosecond()))
}

/// Puts the parts together again.
pub(crate) fn from_parts((seconds, nanos): Parts) -> Option<Timestamp> {
    if (seconds, nanos) == NONE {
        return None;
    }
    Some(Timestamp::new(seconds, nanos).expect("these are the parts of a time"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_short_way_agrees_with_the_long_one(
            parts in (0..2200_u32, 0..14_u32, 0..33_u32, 0..26_u32, 0..62_u32, 0..62_u32),
            fraction in "(\\.[0-9]{0,10})?",
            zone in "Z|z|\\+01:00|",
        ) {
            let (year, month, day, hour, minute, second) = parts;
            let text = format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"
            );
            let long = text.parse::<Timestamp>().ok();
            if let Some(short) = parse_utc(text.as_bytes()) {
                prop_assert_eq!(short, super::parts(long), "{}", text);
            }
            prop_assert_eq!(from_parts(super::parts(long)), long);
        }
    }

    #[test]
    fn a_day_that_was_remembered_gives_the_same_times() {
        let mut day = Day::default();
        for text in [
            "2026-01-31T09:30:00Z",
            "2026-01-31T23:59:59.999999999Z",
            "2026-01-31T24:00:00Z",
            "2026-02-31T09:30:00Z",
            "2026-01-31T09:60:00Z",
            "2026-01-31T09:30:61Z",
            "2026-01-31T09-30:00Z",
            "2026-01-31T0\u{7f}:30:00Z",
            "2026-01-31T09:3\u{b7}:0Z",
            "2026-01-31t09:30:00Z",
            "2025-12-31T00:00:00.1Z",
            "2025-12-31T00:00:00.Z",
            "2025-12-31T00:00:00.1234567890Z",
        ] {
            let short = day.parse(text.as_bytes());
            assert_eq!(short.map(|(time, _)| time), parse_utc(text.as_bytes()), "{text}");
            if let Some((time, len)) = short {
                assert_eq!((time, len), (super::parts(text.parse().ok()), text.len()), "{text}");
            }
        }
    }

    #[test]
    fn plain_times_take_the_short_way() {
        for text in
            ["2026-01-31T09:30:00Z", "2024-02-29T23:59:59.5Z", "1970-01-01T00:00:00.000001Z"]
        {
            assert_eq!(parse_utc(text.as_bytes()), Some(parts(text.parse().ok())), "{text}");
        }
    }
}
