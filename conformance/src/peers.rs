//! The peers, each behind the same trait as ours.

mod async_graphql;
mod batch_aint_one;
mod dataloader_rs;
mod tower_batch_control;
mod ultra_batch;

use crate::candidate::Candidate;
use crate::candidate::Part::{BatchResults, Bound, Keys, Linger};

pub(crate) fn candidates() -> Vec<Candidate> {
    vec![
        Candidate { name: "batch-aint-one", starts: batch_aint_one::start, lacks: &[] },
        Candidate { name: "ultra-batch", starts: ultra_batch::start, lacks: &[Keys] },
        Candidate { name: "async-graphql", starts: async_graphql::start, lacks: &[Keys, Bound] },
        Candidate {
            name: "tower-batch-control",
            starts: tower_batch_control::start,
            lacks: &[Keys, BatchResults],
        },
        Candidate {
            name: "dataloader-rs",
            starts: dataloader_rs::start,
            lacks: &[Linger, Keys, Bound],
        },
    ]
}
