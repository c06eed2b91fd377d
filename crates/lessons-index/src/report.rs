use std::sync::Arc;

use crate::fault::{Fault, FaultKind};

/// Says what was found in a file.
///
/// `lines` = `lessons` + `duplicates` + `faults_total`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Lines that are not blank.
    pub lines: u64,
    /// Distinct ids.
    pub lessons: u64,
    /// Records that a later line with the same id replaces.
    pub duplicates: u64,
    /// Broken lines in all; one broken line is one fault.
    pub faults_total: u64,
    /// The first of them, up to [`Options::with_max_faults`](crate::Options::with_max_faults).
    pub faults: Vec<Fault>,
    by_kind: [u64; FaultKind::ALL.len()],
}

impl LoadReport {
    /// Returns how many lines have a fault of this kind, also those not kept in `faults`.
    pub fn count_of(&self, kind: FaultKind) -> u64 {
        self.by_kind[kind as usize]
    }
}

/// Counts lines while they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: Counts,
    kept: Vec<Fault>,
    /// What the last summary shares; `None` after another fault.
    shared: Option<Arc<[Fault]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lines: u64,
    records: u64,
    faults: u64,
    by_kind: [u64; FaultKind::ALL.len()],
}

/// Is what a snapshot keeps of a [`Tally`]; cheap to make and to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    counts: Counts,
    faults: Arc<[Fault]>,
}

impl Tally {
    pub(crate) fn fault(&mut self, fault: Fault, max_kept: usize) {
        self.counts.lines += 1;
        self.counts.faults += 1;
        self.counts.by_kind[fault.kind as usize] += 1;
        if self.kept.len() < max_kept {
            self.kept.push(fault);
            self.shared = None;
        }
    }

    pub(crate) fn record(&mut self) {
        self.counts.lines += 1;
        self.counts.records += 1;
    }

    /// Adds what was counted in lines behind these; the places of its faults are set right first.
    pub(crate) fn append(&mut self, behind: Self, lines: u64, bytes: u64, max_kept: usize) {
        let room = max_kept.saturating_sub(self.kept.len());
        let moved = behind.kept.into_iter().take(room).map(|mut fault| {
            fault.line += lines;
            fault.offset += bytes;
            fault
        });
        self.kept.extend(moved);
        self.shared = None;
        self.counts.lines += behind.counts.lines;
        self.counts.records += behind.counts.records;
        self.counts.faults += behind.counts.faults;
        for (count, more) in self.counts.by_kind.iter_mut().zip(behind.counts.by_kind) {
            *count += more;
        }
    }

    pub(crate) fn first_fault(&self) -> Option<&Fault> {
        self.kept.first()
    }

    pub(crate) fn summary(&mut self) -> Summary {
        let kept = &self.kept;
        let faults = self.shared.get_or_insert_with(|| kept.as_slice().into());
        Summary { counts: self.counts, faults: Arc::clone(faults) }
    }
}

impl Summary {
    pub(crate) fn report(&self, lessons: usize) -> LoadReport {
        let lessons = lessons as u64;
        LoadReport {
            lines: self.counts.lines,
            lessons,
            duplicates: self.counts.records.saturating_sub(lessons),
            faults_total: self.counts.faults,
            faults: self.faults.to_vec(),
            by_kind: self.counts.by_kind,
        }
    }
}
