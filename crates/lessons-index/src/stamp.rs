//! Times of a line.

use jiff::Timestamp;

/// How Go writes a time that was never set.
const NEVER: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Parses a time; the one that was never set is `None`.
pub(crate) fn parse(text: &str) -> Result<Option<Timestamp>, jiff::Error> {
    let time = match parse_utc(text.as_bytes()) {
        Some(time) => time,
        None => text.parse()?,
    };
    Ok(known(time))
}

/// Returns a time, unless it is the one that was never set.
pub(crate) fn known(time: Timestamp) -> Option<Timestamp> {
    (time != NEVER).then_some(time)
}

/// Parses the common form `2026-01-31T09:30:00.123Z`; `None` for every other.
fn parse_utc(text: &[u8]) -> Option<Timestamp> {
    let (head, rest) = text.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, wanted)| head[*at] != *wanted) {
        return None;
    }
    let [year, month, day] = [digits(&head[..4])?, digits(&head[5..7])?, digits(&head[8..10])?];
    let [hour, minute, second] =
        [digits(&head[11..13])?, digits(&head[14..16])?, digits(&head[17..])?];
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
    let nanos = match rest {
        b"Z" => 0,
        [b'.', fraction @ .., b'Z'] if (1..=9).contains(&fraction.len()) => {
            digits(fraction)? * 10_i64.pow(u32::try_from(9 - fraction.len()).ok()?)
        }
        _ => return None,
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    // Before 1970 the parts of a time have to have one sign.
    (seconds >= 0).then(|| Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok())?
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
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
pub(crate) fn parts(time: Option<Timestamp>) -> (i64, i32) {
    time.map_or((i64::MIN, 0), |time| (time.as_second(), time.subsec_nanosecond()))
}

/// Puts the parts together again.
pub(crate) fn from_parts(seconds: i64, nanos: i32) -> Option<Timestamp> {
    if seconds == i64::MIN {
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
                prop_assert_eq!(Some(short), long, "{}", text);
            }
            let (seconds, nanos) = super::parts(long);
            prop_assert_eq!(from_parts(seconds, nanos), long);
        }
    }

    #[test]
    fn plain_times_take_the_short_way() {
        for text in
            ["2026-01-31T09:30:00Z", "2024-02-29T23:59:59.5Z", "1970-01-01T00:00:00.000001Z"]
        {
            assert_eq!(parse_utc(text.as_bytes()), Some(text.parse().unwrap()), "{text}");
        }
    }
}
