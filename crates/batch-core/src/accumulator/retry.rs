//! When a call is made again, and whether.

use super::policy::{RetryPolicy, Time};

/// A successful call gives back this part of what a retried one costs.
const SHARES: u64 = 5;

/// The budget and the jitter of retries.
#[derive(Debug)]
pub(super) struct Retries {
    policy: RetryPolicy,
    /// What is left of the budget, in shares of a call; at most the whole budget.
    shares: u64,
    /// State of the random numbers (`SplitMix64`).
    random: u64,
}

impl Retries {
    pub(super) fn new(policy: RetryPolicy, seed: u64) -> Self {
        Self { policy, shares: u64::from(policy.budget) * SHARES, random: seed }
    }

    /// Says whether an item that was retried so often may be once more.
    pub(super) fn allows(&self, retries: u32) -> bool {
        retries.saturating_add(1) < self.policy.max_attempts
    }

    /// Draws the delay of a call after so many retries: full jitter, but at least `after`.
    pub(super) fn delay(&mut self, retries: u32, after: u64) -> Time {
        let factor = 1_u64.checked_shl(retries).unwrap_or(u64::MAX);
        let longest = self.policy.base.saturating_mul(factor).min(self.policy.cap);
        self.up_to(longest).max(after)
    }

    /// Takes the price of one call out of the budget, if it is there.
    pub(super) fn pay(&mut self) -> bool {
        let rest = self.shares.checked_sub(SHARES);
        self.shares = rest.unwrap_or(self.shares);
        rest.is_some()
    }

    /// Gives back the part that a call with a completed item earns.
    pub(super) fn earn(&mut self) {
        self.shares = (self.shares + 1).min(u64::from(self.policy.budget) * SHARES);
    }

    /// Draws a number from 0 to `max`, both included.
    fn up_to(&mut self, max: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let scaled = u128::from(bits) * (u128::from(max) + 1);
        u64::try_from(scaled >> 64).expect("a product with less than 2^64 + 1 over 2^64")
    }
}
