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
    let (head, rest) = text.split_first_chunk::<19>()?;
    let mut is_wrong = false;
    for (at, wanted) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        is_wrong |= head[at] != wanted;
    }
    for at in [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18] {
        is_wrong |= !head[at].is_ascii_digit();
    }
    if is_wrong {
        return None;
    }
    let two = |at: usize| i64::from(head[at] - b'0') * 10 + i64::from(head[at + 1] - b'0');
    let (year, month, day) = (two(0) * 100 + two(2), two(5), two(8));
    let (hour, minute, second) = (two(11), two(14), two(17));
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    if !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The parts of a time before 1970 have to have one sign, and the last one there is comes in
    // the year 9999.
    if !(1970..9999).contains(&year) {
        return None;
    }
    let nanos = match rest {
        b"Z" => 0,
        [b'.', fraction @ .., b'Z'] if (1..=9).contains(&fraction.len()) => {
            digits(fraction)? * 10_i32.pow(u32::try_from(9 - fraction.len()).ok()?)
        }
        _ => return None,
    };
    Some((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second, nanos))
}

fn digits(text: &[u8]) -> Option<i32> {
    text.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i32::from(digit - b'0'))
    })
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
    fn plain_times_take_the_short_way() {
        for text in
            ["2026-01-31T09:30:00Z", "2024-02-29T23:59:59.5Z", "1970-01-01T00:00:00.000001Z"]
        {
            assert_eq!(parse_utc(text.as_bytes()), Some(parts(text.parse().ok())), "{text}");
        }
    }
}
