//! Pages and segments to one segment.

use std::sync::Arc;

use crate::assemble::assemble;
use crate::draft::{Draft, groups};
use crate::fingerprint::{Failures, Fingerprint};
use crate::hash;
use crate::marks::Wanted;
use crate::segment::Segment;
use crate::tail::{PAGE, Page};

/// Is what is put into one segment, or into several if there is more than one may hold.
pub(super) struct Merge {
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) pages: Vec<Arc<Page>>,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) is_warm: bool,
}

impl Merge {
    pub(super) fn build(&self, max_bytes: usize) -> Vec<Segment> {
        let of_segment = |segment: &Arc<Segment>| Draft::of_segment(segment, self.seq, max_bytes);
        let mut drafts: Vec<Draft> = self.segments.iter().flat_map(of_segment).collect();
        let slots = self.pages.iter().flat_map(|page| page.visible(PAGE, self.seq, Wanted::ALL));
        let lessons = slots.map(|slot| Arc::clone(&slot.lesson));
        drafts.extend(Draft::of_lessons(lessons, max_bytes));
        // Only the visible are here, each once, so that it does not matter which come together.
        let segments = groups(drafts, max_bytes).into_iter().map(|drafts| assemble(drafts).segment);
        let segments: Vec<Segment> = segments.filter(|segment| segment.len() > 0).collect();
        // To make a fingerprint takes longer than all else about a merge. Of large segments none are
        // kept.
        if self.is_warm || self.segments.iter().any(|segment| segment.failures.get().is_some()) {
            let few = |segment: &&Segment| segment.len() as usize <= Failures::KEPT;
            let small: Vec<&Segment> = segments.iter().filter(few).collect();
            for (segment, kinds) in small.iter().zip(self.kinds(&small)) {
                let is_new = segment.failures.set(Failures::of_kinds(kinds)).is_ok();
                debug_assert!(is_new, "nobody else has the segment yet");
            }
        }
        if self.is_warm {
            segments.iter().for_each(Segment::warm);
        }
        segments
    }

    /// Returns the fingerprints of what was merged, as they are known where that came from.
    fn kinds(&self, merged: &[&Segment]) -> Vec<Vec<Fingerprint>> {
        if merged.is_empty() {
            return Vec::new();
        }
        let none = |segment: &&Segment| vec![None; segment.len() as usize];
        let mut kinds: Vec<Vec<Option<Fingerprint>>> = merged.iter().map(none).collect();
        let mut put = |id: &str, kind: &dyn Fn() -> Fingerprint| {
            let hash = hash::of(id);
            let found = merged.iter().zip(&mut kinds).find_map(|(segment, kinds)| {
                let doc = segment.find(hash, id, self.seq)?;
                Some(&mut kinds[doc as usize])
            });
            if let Some(found) = found {
                *found = Some(kind());
            }
        };
        for slot in self.pages.iter().flat_map(|page| page.visible(PAGE, self.seq, Wanted::ALL)) {
            put(&slot.lesson.id, &|| slot.kind());
        }
        for segment in &self.segments {
            for doc in (0..segment.len()).filter(|doc| segment.is_visible(*doc, self.seq)) {
                put(segment.id(doc), &|| segment.kind(doc));
            }
        }
        let known = |kind: Option<Fingerprint>| kind.expect("what was merged came from somewhere");
        kinds.into_iter().map(|kinds| kinds.into_iter().map(known).collect()).collect()
    }
}
