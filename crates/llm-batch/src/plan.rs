//! Which requests go together.

use std::collections::HashMap;

use crate::answer::RequestError;
use crate::provider::Limits;
use crate::table::Table;
use crate::wire_id::MAX_REQUESTS;

/// A request that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Its index in the table.
    pub(crate) member: u32,
    /// The number of the record in which it was given up.
    pub(crate) replaces: Option<u64>,
    /// How often it came back without an answer.
    pub(crate) resent: u32,
    /// Whether it may have been paid for.
    pub(crate) is_doubted: bool,
}

/// The requests of one create, by their index in the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) members: Vec<u32>,
    /// The numbers of the records in which they were given up.
    pub(crate) replaces: Vec<u64>,
    pub(crate) resent: u32,
}

impl Piece {
    fn push(&mut self, candidate: &Candidate) {
        self.members.push(candidate.member);
        // Those of one record come in a row.
        if candidate.replaces.as_ref() != self.replaces.last() {
            self.replaces.extend(candidate.replaces);
        }
    }
}

/// Groups candidates by kind and model, in order of first appearance, and cuts each group at the
/// limits. Those that may have been paid for go with others of their record only, which is how
/// doubts are counted. A request that is over the byte limit alone is left out.
pub(crate) fn plan(
    table: &Table,
    candidates: &[Candidate],
    limits: &Limits,
    max_items: usize,
) -> (Vec<Piece>, Vec<(usize, RequestError)>) {
    let max_items = max_items.min(limits.max_items).clamp(1, MAX_REQUESTS);
    // The last piece of each group, and its length.
    let mut pieces: Vec<(Piece, u64)> = Vec::new();
    let mut order: Vec<Vec<usize>> = Vec::new();
    let mut groups: HashMap<(u32, u32, Option<u64>), usize> = HashMap::new();
    let mut refused = Vec::new();
    for candidate in candidates {
        let item = &table.items()[candidate.member as usize];
        let bytes = item.bytes.saturating_add(limits.entry_bytes);
        let alone = bytes.saturating_add(limits.frame_bytes);
        if alone > limits.max_bytes {
            let error = RequestError::TooLarge { bytes: alone, max: limits.max_bytes };
            refused.push((candidate.member as usize, error));
            continue;
        }
        let apart = candidate.replaces.filter(|_| candidate.is_doubted);
        let key = (item.group, candidate.resent, apart);
        let group = *groups.entry(key).or_insert_with(|| {
            order.push(Vec::new());
            order.len() - 1
        });
        let last = order[group].last().map(|&at| &mut pieces[at]);
        match last {
            Some((piece, total))
                if piece.members.len() < max_items && *total + bytes <= limits.max_bytes =>
            {
                piece.push(candidate);
                *total += bytes;
            }
            _ => {
                order[group].push(pieces.len());
                let resent = candidate.resent;
                let mut piece = Piece { members: Vec::new(), replaces: Vec::new(), resent };
                piece.push(candidate);
                pieces.push((piece, alone));
            }
        }
    }
    let mut pieces: Vec<Option<Piece>> = pieces.into_iter().map(|(p, _)| Some(p)).collect();
    let planned = order.into_iter().flatten().filter_map(|at| pieces[at].take()).collect();
    (planned, refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { max_items: 3, max_bytes: 100, frame_bytes: 10, entry_bytes: 5 };

    fn candidate(member: u32, replaces: Option<u64>) -> Candidate {
        Candidate { member, replaces, resent: 0, is_doubted: false }
    }

    fn all(table: &Table) -> Vec<Candidate> {
        (0..).take(table.items().len()).map(|member| candidate(member, None)).collect()
    }

    fn planned(
        items: &[(u8, u64)],
        max_items: usize,
    ) -> (Table, Vec<Piece>, Vec<(usize, RequestError)>) {
        let table = Table::of_sizes(items);
        let (pieces, refused) = plan(&table, &all(&table), &LIMITS, max_items);
        (table, pieces, refused)
    }

    fn piece(members: &[u32]) -> Piece {
        Piece { members: members.to_vec(), replaces: Vec::new(), resent: 0 }
    }

    #[test]
    fn exact_limits_fit_and_one_byte_more_does_not() {
        // 10 + (5 + 40) + (5 + 40) = 100.
        let (_, pieces, refused) = planned(&[(0, 40), (0, 40)], 10);
        assert_eq!(pieces, [piece(&[0, 1])]);
        assert!(refused.is_empty());
        let (_, pieces, _) = planned(&[(0, 40), (0, 41)], 10);
        assert_eq!(pieces, [piece(&[0]), piece(&[1])]);
        // 10 + 5 + 85 = 100 fits alone, 86 does not and fails alone.
        let (_, pieces, refused) = planned(&[(0, 86), (0, 85)], 10);
        assert_eq!(pieces, [piece(&[1])]);
        assert!(matches!(refused[..], [(0, RequestError::TooLarge { bytes: 101, max: 100 })]));
    }

    /// The limits of the providers, to the request and to the byte.
    #[test]
    fn creates_are_cut_at_the_limits_of_the_providers_exactly() {
        let sizes = |count: usize, max_items: usize| -> Vec<usize> {
            let table = Table::of_sizes(&vec![(0, 100); count]);
            let limits =
                Limits { max_items, max_bytes: 256_000_000, frame_bytes: 14, entry_bytes: 50 };
            let (pieces, refused) = plan(&table, &all(&table), &limits, usize::MAX);
            assert!(refused.is_empty());
            pieces.iter().map(|piece| piece.members.len()).collect()
        };
        assert_eq!(sizes(99_999, 100_000), [99_999]);
        assert_eq!(sizes(100_000, 100_000), [100_000]);
        assert_eq!(sizes(100_001, 100_000), [100_000, 1]);
        assert_eq!(sizes(50_001, 50_000), [50_000, 1]);
        for max_bytes in [256_000_000_u64, 200_000_000] {
            let limits = Limits { max_items: 9, max_bytes, frame_bytes: 14, entry_bytes: 50 };
            let half = (max_bytes - 14) / 2 - 50;
            for (last, creates) in [(half - 1, 1), (half, 1), (half + 1, 2)] {
                let table = Table::of_sizes(&[(0, half), (0, last)]);
                let (pieces, _) = plan(&table, &all(&table), &limits, 9);
                assert_eq!(pieces.len(), creates, "{max_bytes}: {last}");
            }
        }
    }

    /// Asked alone, each request has a record of its own: together they are one create.
    #[test]
    fn requests_of_different_records_share_a_create_unless_one_may_be_paid_for() {
        let table = Table::of_sizes(&[(0, 1); 6]);
        let of = |candidates: &[Candidate]| plan(&table, candidates, &LIMITS, 10).0;
        let candidates = [candidate(0, Some(7)), candidate(1, None), candidate(2, Some(8))];
        let replaces = vec![7, 8];
        assert_eq!(of(&candidates), [Piece { replaces, ..piece(&[0, 1, 2]) }]);

        let doubted = |member, number| Candidate { is_doubted: true, ..candidate(member, number) };
        let candidates = [doubted(0, Some(7)), candidate(1, None), doubted(2, Some(7))];
        let again = Piece { replaces: vec![7], ..piece(&[0, 2]) };
        assert_eq!(of(&candidates), [again, piece(&[1])]);

        let resent = Candidate { resent: 1, ..candidate(0, Some(7)) };
        let again = Piece { replaces: vec![7], resent: 1, ..piece(&[0]) };
        let other = Piece { replaces: vec![8], ..piece(&[1]) };
        assert_eq!(of(&[resent, candidate(1, Some(8))]), [again, other]);
    }

    /// The position on the wire has six digits; a result with a seventh would be nobody's.
    #[test]
    fn a_create_holds_no_more_than_can_be_numbered() {
        let table = Table::of_sizes(&vec![(0, 1); 1_000_001]);
        let limits =
            Limits { max_items: usize::MAX, max_bytes: u64::MAX, frame_bytes: 0, entry_bytes: 0 };
        let (pieces, _) = plan(&table, &all(&table), &limits, usize::MAX);
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.members.len()).collect();
        assert_eq!(sizes, [1_000_000, 1]);
    }

    proptest! {
        #[test]
        fn every_request_is_planned_once_within_the_limits(
            items in proptest::collection::vec((0_u8..6, 0_u64..120), 0..60),
            max_items in 0_usize..6,
        ) {
            let (table, pieces, refused) = planned(&items, max_items);
            let mut seen: Vec<usize> = refused.iter().map(|r| r.0).collect();
            for piece in &pieces {
                prop_assert!(!piece.members.is_empty());
                prop_assert!(piece.members.len() <= max_items.clamp(1, 3));
                let bytes: u64 = piece.members.iter().map(|&m| items[m as usize].1 + 5).sum();
                prop_assert!(bytes + 10 <= 100);
                let first = table.group(piece.members[0] as usize);
                prop_assert!(piece.members.iter().all(|&m| table.group(m as usize) == first));
                prop_assert!(piece.members.is_sorted());
                seen.extend(piece.members.iter().map(|&m| m as usize));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
        }
    }
}
