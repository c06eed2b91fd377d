//! Adding small numbers for many lessons at once, a bit of each in a word.

/// Holds a bit for each of 512 lessons.
type Bits = [u64; Planes::WORDS];

/// Adds up a number for each of 512 lessons: bit `n` of each stands in plane `n`.
///
/// Of each plane one addend waits for the next, so that two of them are added at once, and a carry
/// goes up for two of them only.
#[derive(Default)]
pub(crate) struct Planes {
    sums: [Bits; Planes::BITS],
    waiting: [Bits; Planes::BITS],
    is_waiting: [bool; Planes::BITS],
}

impl Planes {
    pub(crate) const WORDS: usize = 8;
    const BITS: usize = 8;
    /// The largest sum.
    pub(crate) const MAX: u32 = (1 << Self::BITS) - 1;

    /// Adds a number to the lessons whose bit is set. No sum may be over [`MAX`](Self::MAX).
    pub(crate) fn add(&mut self, bits: &[u64], number: u32) {
        let wanted = match <&Bits>::try_from(bits) {
            Ok(bits) => *bits,
            Err(_) => std::array::from_fn(|at| bits.get(at).copied().unwrap_or_default()),
        };
        // Comparing the arrays would be a call.
        if wanted.iter().fold(0, |all, word| all | word) == 0 {
            return;
        }
        for low in (0..Self::BITS).filter(|bit| number >> bit & 1 == 1) {
            let mut carry = wanted;
            for at in low..Self::BITS {
                if !self.is_waiting[at] {
                    self.waiting[at] = carry;
                    self.is_waiting[at] = true;
                    break;
                }
                self.is_waiting[at] = false;
                carry = add(&mut self.sums[at], &self.waiting[at], &carry);
            }
        }
    }

    /// Returns the sums.
    pub(crate) fn sums(mut self) -> Sums {
        let mut carry = Bits::default();
        for (at, plane) in self.sums.iter_mut().enumerate() {
            let waiting = if self.is_waiting[at] { self.waiting[at] } else { Bits::default() };
            carry = add(plane, &waiting, &carry);
        }
        Sums { planes: self.sums }
    }
}

/// Adds two bits to each of a plane and returns what is to be carried.
fn add(plane: &mut Bits, one: &Bits, other: &Bits) -> Bits {
    std::array::from_fn(|at| {
        let (a, b, c) = (plane[at], one[at], other[at]);
        plane[at] = a ^ b ^ c;
        a & b | (a ^ b) & c
    })
}

/// Holds the sum of each of 512 lessons.
pub(crate) struct Sums {
    planes: [Bits; Planes::BITS],
}

impl Sums {
    /// Returns which lessons of a word have at least so much.
    pub(crate) fn at_least(&self, word: usize, least: f64) -> u64 {
        if least > f64::from(Planes::MAX) {
            return 0;
        }
        // A little less, so that no lesson is passed by a hair.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and MAX"
        )]
        let least = (least - 1e-6).max(0.0).ceil() as u32;
        let (mut more, mut same) = (0, u64::MAX);
        for (bit, plane) in self.planes.iter().enumerate().rev() {
            if least >> bit & 1 == 1 {
                same &= plane[word];
            } else {
                more |= same & plane[word];
                same &= !plane[word];
            }
        }
        more | same
    }

    /// Returns the sum of one lesson.
    pub(crate) fn sum(&self, word: usize, bit: u32) -> u32 {
        let bits = self.planes.iter().enumerate();
        bits.map(|(n, plane)| u32::from(plane[word] >> bit & 1 == 1) << n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_adding_one_by_one() {
        let mut planes = Planes::default();
        let mut sums = [0_u32; 512];
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        for number in [1, 2, 3, 7, 30, 64, 100] {
            let words: Vec<u64> = (0..8)
                .map(|_| {
                    bits = bits.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17) ^ number;
                    bits
                })
                .collect();
            let number = u32::try_from(number).unwrap();
            planes.add(&words, number);
            for (lesson, sum) in sums.iter_mut().enumerate() {
                *sum += number * u32::from(words[lesson / 64] >> (lesson % 64) & 1 == 1);
            }
        }
        let planes = planes.sums();
        for (lesson, sum) in sums.iter().enumerate() {
            assert_eq!(planes.sum(lesson / 64, u32::try_from(lesson % 64).unwrap()), *sum);
            for least in [0.0, 1.0, 63.5, 100.0, 207.0, 255.0] {
                let is_in = planes.at_least(lesson / 64, least) >> (lesson % 64) & 1 == 1;
                assert!(is_in || f64::from(*sum) < least, "{sum} is not below {least}");
                assert!(!is_in || f64::from(*sum) > least - 1.0, "{sum} is far below {least}");
            }
            assert_eq!(planes.at_least(lesson / 64, 256.0), 0);
        }
    }
}
