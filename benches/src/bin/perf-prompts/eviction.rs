//! How many compiles the order of eviction costs, beside first in, first out.

use std::collections::{HashSet, VecDeque};

use prompt_templates::Prompts;

use crate::{Fallible, Figure};

const CAPACITY: usize = 100;

const ACCESSES: usize = 60_000;

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let figure = |name, ratio| Figure { name, ratio };
    Ok(vec![
        figure("prompts_misses_zipf_vs_fifo", misses(300, 0.0)?),
        figure("prompts_misses_with_one_off_texts_vs_fifo", misses(150, 0.3)?),
    ])
}

/// Returns the misses of named templates in the store as a share of those of a queue.
fn misses(names: usize, one_offs: f64) -> Fallible<f64> {
    let prompts = Prompts::builder().capacity(CAPACITY).build()?;
    let mut queue = Queue::default();
    let zipf = Zipf::new(names);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut ours, mut fifo) = (0_u32, 0_u32);
    for n in 0..ACCESSES {
        let is_one_off = random.unit() < one_offs;
        let name = if is_one_off {
            format!("once-{n}")
        } else {
            format!("name-{}", zipf.pick(&mut random))
        };
        if prompts.get(&name).is_none() {
            prompts.compile(&name, "x")?;
            ours += u32::from(!is_one_off);
        }
        fifo += u32::from(queue.misses(name) && !is_one_off);
    }
    Ok(f64::from(ours) / f64::from(fifo))
}

#[derive(Default)]
struct Queue {
    order: VecDeque<String>,
    present: HashSet<String>,
}

impl Queue {
    fn misses(&mut self, name: String) -> bool {
        if !self.present.insert(name.clone()) {
            return false;
        }
        self.order.push_back(name);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.present.remove(&oldest);
        }
        true
    }
}

/// Picks the n-th of some things with a weight of 1/n.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: usize) -> Self {
        let mut sum = 0.0;
        let weights = (1..=count).map(|rank| {
            #[expect(clippy::cast_precision_loss, reason = "hundreds")]
            let rank = rank as f64;
            sum += rank.recip();
            sum
        });
        Self { sums: weights.collect() }
    }

    fn pick(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < at)
    }
}

/// The same numbers in each run (xorshift).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        unit
    }
}
