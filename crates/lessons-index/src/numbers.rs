//! Many numbers, in as few bytes each as the largest of them needs.

use std::cmp::Reverse;
use std::fmt;

use crate::draft::narrow;

/// Holds a number for each lesson.
///
/// Not in huge pages: a walk asks for one number of each lesson it passes, and it would take longer
/// to ask which pages those are in than a page table costs.
pub(crate) enum Numbers {
    One(Box<[u8]>),
    Two(Box<[u16]>),
    Four(Box<[u32]>),
    Eight(Box<[u64]>),
}

/// Takes numbers one after the other.
pub(crate) enum Growing {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

impl Growing {
    /// Makes room for so many numbers, of which none is larger than `max`.
    pub(crate) fn new(max: u64, count: usize) -> Self {
        if max <= u8::MAX.into() {
            Self::One(Vec::with_capacity(count))
        } else if max <= u16::MAX.into() {
            Self::Two(Vec::with_capacity(count))
        } else if max <= u32::MAX.into() {
            Self::Four(Vec::with_capacity(count))
        } else {
            Self::Eight(Vec::with_capacity(count))
        }
    }

    #[inline]
    pub(crate) fn extend(&mut self, more: impl ExactSizeIterator<Item = u64>) {
        match self {
            Self::One(numbers) => numbers.extend(more.map(fitting::<u8>)),
            Self::Two(numbers) => numbers.extend(more.map(fitting::<u16>)),
            Self::Four(numbers) => numbers.extend(more.map(fitting::<u32>)),
            Self::Eight(numbers) => numbers.extend(more),
        }
    }

    pub(crate) fn finish(self) -> Numbers {
        match self {
            Self::One(numbers) => Numbers::One(numbers.into()),
            Self::Two(numbers) => Numbers::Two(numbers.into()),
            Self::Four(numbers) => Numbers::Four(numbers.into()),
            Self::Eight(numbers) => Numbers::Eight(numbers.into()),
        }
    }
}

impl Numbers {
    /// Hands on all numbers in order.
    #[inline]
    pub(crate) fn each(&self, on_number: impl FnMut(u64)) {
        match self {
            Self::One(numbers) => numbers.iter().copied().map(u64::from).for_each(on_number),
            Self::Two(numbers) => numbers.iter().copied().map(u64::from).for_each(on_number),
            Self::Four(numbers) => numbers.iter().copied().map(u64::from).for_each(on_number),
            Self::Eight(numbers) => numbers.iter().copied().for_each(on_number),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(numbers) => numbers.len(),
            Self::Two(numbers) => numbers.len(),
            Self::Four(numbers) => numbers.len(),
            Self::Eight(numbers) => numbers.len(),
        }
    }

    /// Returns the places of all numbers, the largest first and equals in order.
    pub(crate) fn largest_first(&self) -> Box<[u32]> {
        let mut places: Box<[u32]> = (0..narrow(self.len())).collect();
        let max = match self {
            Self::One(_) => u8::MAX.into(),
            Self::Two(_) => u16::MAX.into(),
            Self::Four(_) | Self::Eight(_) => usize::MAX,
        };
        if max / 4 > places.len() {
            places.sort_by_key(|at| Reverse(self.get(*at as usize)));
            return places;
        }
        // How many there are of each tells where the places of those begin.
        let below_max = |at: u32| max - usize::try_from(self.get(at as usize)).unwrap_or(max);
        let mut starts = vec![0_u32; max + 2];
        for at in 0..narrow(places.len()) {
            starts[below_max(at) + 1] += 1;
        }
        for number in 1..starts.len() {
            starts[number] += starts[number - 1];
        }
        for at in 0..narrow(places.len()) {
            let next = &mut starts[below_max(at)];
            places[*next as usize] = at;
            *next += 1;
        }
        places
    }

    /// Returns the place of the first number below a limit, of numbers of which the largest come
    /// first. Takes as many steps as the place has bits.
    fn first_below(&self, limit: u64) -> usize {
        fn find<T: Copy + Into<u64>>(numbers: &[T], limit: u64) -> usize {
            let is_above = |number: &T| (*number).into() >= limit;
            let (mut from, mut step) = (0, 1);
            while numbers.get(from + step - 1).is_some_and(is_above) {
                from += step;
                step *= 2;
            }
            let end = numbers.len().min(from + step - 1);
            from + numbers[from..end].partition_point(is_above)
        }
        match self {
            Self::One(numbers) => find(numbers, limit),
            Self::Two(numbers) => find(numbers, limit),
            Self::Four(numbers) => find(numbers, limit),
            Self::Eight(numbers) => find(numbers, limit),
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        match self {
            Self::One(numbers) => numbers[at].into(),
            Self::Two(numbers) => numbers[at].into(),
            Self::Four(numbers) => numbers[at].into(),
            Self::Eight(numbers) => numbers[at],
        }
    }
}

fn fitting<T: TryFrom<u64, Error: fmt::Debug>>(number: u64) -> T {
    number.try_into().expect("no number is larger than the largest")
}

/// Holds a time for each lesson, or none, in seconds.
#[derive(Debug)]
pub(crate) struct Seconds {
    first: i64,
    /// Zero where there is none, else one more than the seconds since the first.
    since: Numbers,
}

/// Takes times one after the other; [`i64::MIN`] is none.
pub(crate) struct GrowingSeconds {
    first: i64,
    since: Growing,
}

impl GrowingSeconds {
    /// Makes room for so many times, of which none is before `first` or behind `last`.
    pub(crate) fn new(first: i64, last: i64, count: usize) -> Self {
        Self { first, since: Growing::new(since(first, last), count) }
    }

    #[inline]
    pub(crate) fn extend(&mut self, more: impl ExactSizeIterator<Item = i64>) {
        let first = self.first;
        let of = |seconds| if seconds == i64::MIN { 0 } else { since(first, seconds) };
        self.since.extend(more.map(of));
    }

    pub(crate) fn finish(self) -> Seconds {
        Seconds { first: self.first, since: self.since.finish() }
    }
}

/// No two times are as far apart as half of what fits in here.
fn since(first: i64, seconds: i64) -> u64 {
    seconds.wrapping_sub(first).cast_unsigned().wrapping_add(1)
}

impl Seconds {
    /// Returns the place of the first time before a second, or of none, of times of which the newest
    /// come first.
    pub(crate) fn first_before(&self, second: i64) -> usize {
        let since = match second {
            i64::MIN => 0,
            _ if second <= self.first => 1,
            later => since(self.first, later),
        };
        self.since.first_below(since)
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> i64 {
        match self.since.get(at) {
            0 => i64::MIN,
            since => self.first.wrapping_add((since - 1).cast_signed()),
        }
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(max: u64, all: &[u64]) -> Numbers {
        let mut numbers = Growing::new(max, all.len());
        numbers.extend(all.iter().copied());
        numbers.finish()
    }

    fn seconds(all: &[i64]) -> Seconds {
        let known = || all.iter().copied().filter(|seconds| *seconds != i64::MIN);
        let (first, last) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
        let mut seconds = GrowingSeconds::new(first, last, all.len());
        seconds.extend(all.iter().copied());
        seconds.finish()
    }

    #[test]
    fn numbers_come_back_whatever_they_need() {
        for max in [0, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let all = [0, max / 2, max];
            let numbers = numbers(max, &all);
            assert_eq!([0, 1, 2].map(|at| numbers.get(at)), all);
        }
    }

    #[test]
    fn the_largest_come_first_and_equals_stay_in_order() {
        for (max, times) in
            [(9, 30), (255, 1), (300, 3_000), (65_535, 1), (70_000, 9), (1 << 40, 9)]
        {
            let all = [0, max, 5, max, 0, 5, max / 2].repeat(times);
            let numbers = numbers(max, &all);
            let mut wanted: Vec<u32> = (0..narrow(all.len())).collect();
            wanted.sort_by_key(|at| Reverse(all[*at as usize]));
            assert_eq!(*numbers.largest_first(), *wanted, "{max}");
        }
    }

    #[test]
    fn times_come_back_however_far_they_are_apart() {
        // The first and the last that there is.
        let (first, last) = (-377_705_023_201, 253_402_207_200);
        for all in [
            &[][..],
            &[i64::MIN],
            &[1_770_000_000, i64::MIN, 1_769_999_999],
            &[-1, 0, 1],
            &[first, i64::MIN, last, 0],
        ] {
            let seconds = seconds(all);
            let back: Vec<i64> = (0..all.len()).map(|at| seconds.get(at)).collect();
            assert_eq!(back, all);
        }
    }

    #[test]
    fn the_first_before_a_second_is_found_wherever_it_is() {
        for (count, apart) in [(0, 1), (1, 1), (2, 3), (300, 1), (300, 900), (70_000, 2)] {
            let of = |at: i64| 1_000_000 - at / 3 * apart;
            let known: Vec<i64> = (0..count).map(of).collect();
            let none = vec![i64::MIN; 2];
            for all in [known.clone(), [known, none].concat()] {
                let seconds = seconds(&all);
                let near = [0, 1, 7, 150, 299].map(of).into_iter();
                let near = near.flat_map(|second| [second - 1, second, second + 1]);
                for second in near.chain([i64::MIN, i64::MAX, -5]) {
                    let wanted = all.partition_point(|one| *one >= second);
                    assert_eq!(seconds.first_before(second), wanted, "{second} of {}", all.len());
                }
            }
        }
    }
}
