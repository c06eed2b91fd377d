//! Which requests go together.

use std::collections::HashMap;
use std::mem;

use crate::answer::RequestError;
use crate::provider::Limits;
use crate::request::{Kind, Request};
use crate::wire_id::MAX_REQUESTS;

/// The requests of one create, by their index in the run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) members: Vec<usize>,
}

/// Groups `candidates` (index, encoded bytes) by kind and model, in order of first appearance,
/// and cuts each group at the limits. A request that is over the byte limit alone is left out.
pub(crate) fn plan(
    requests: &[&Request],
    candidates: &[(usize, u64)],
    limits: &Limits,
    max_items: usize,
) -> (Vec<Piece>, Vec<(usize, RequestError)>) {
    let max_items = max_items.min(limits.max_items).clamp(1, MAX_REQUESTS);
    let mut groups: Vec<Vec<(usize, u64)>> = Vec::new();
    let mut index: HashMap<(&Kind, &str), usize> = HashMap::new();
    let mut refused = Vec::new();
    for &(member, encoded) in candidates {
        let bytes = encoded.saturating_add(limits.entry_bytes);
        let alone = bytes.saturating_add(limits.frame_bytes);
        if alone > limits.max_bytes {
            refused.push((member, RequestError::TooLarge { bytes: alone, max: limits.max_bytes }));
            continue;
        }
        let key = (&requests[member].kind, requests[member].model.as_str());
        let at = *index.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push((member, bytes));
    }
    let mut pieces = Vec::new();
    for members in groups {
        let mut piece = Piece { members: Vec::new() };
        let mut total = limits.frame_bytes;
        for (member, bytes) in members {
            if piece.members.len() == max_items || total + bytes > limits.max_bytes {
                pieces.push(mem::replace(&mut piece, Piece { members: Vec::new() }));
                total = limits.frame_bytes;
            }
            piece.members.push(member);
            total += bytes;
        }
        pieces.push(piece);
    }
    (pieces, refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { max_items: 3, max_bytes: 100, frame_bytes: 10, entry_bytes: 5 };

    fn requests(kinds: &[u8]) -> Vec<Request> {
        kinds
            .iter()
            .enumerate()
            .map(|(i, k)| {
                let kind = if k % 2 == 0 { Kind::Judge } else { Kind::Planner };
                Request::prompt(i.to_string(), format!("m{}", k % 3), "x").with_kind(kind)
            })
            .collect()
    }

    #[test]
    fn exact_limits_fit_and_one_byte_more_does_not() {
        let owned = requests(&[0, 0]);
        let borrowed: Vec<&Request> = owned.iter().collect();
        // 10 + (5 + 40) + (5 + 40) = 100.
        let (pieces, refused) = plan(&borrowed, &[(0, 40), (1, 40)], &LIMITS, 10);
        assert_eq!(pieces, [Piece { members: vec![0, 1] }]);
        assert!(refused.is_empty());
        let (pieces, _) = plan(&borrowed, &[(0, 40), (1, 41)], &LIMITS, 10);
        assert_eq!(pieces, [Piece { members: vec![0] }, Piece { members: vec![1] }]);
        // 10 + 5 + 85 = 100 fits alone, 86 does not and fails alone.
        let (pieces, refused) = plan(&borrowed, &[(0, 86), (1, 85)], &LIMITS, 10);
        assert_eq!(pieces, [Piece { members: vec![1] }]);
        assert!(matches!(refused[..], [(0, RequestError::TooLarge { bytes: 101, max: 100 })]));
    }

    /// The position on the wire has six digits; a result with a seventh would be nobody's.
    #[test]
    fn a_create_holds_no_more_than_can_be_numbered() {
        let one = Request::prompt("a", "m", "x");
        let many = 1_000_001;
        let limits =
            Limits { max_items: usize::MAX, max_bytes: u64::MAX, frame_bytes: 0, entry_bytes: 0 };
        let candidates: Vec<(usize, u64)> = (0..many).map(|at| (at, 1)).collect();
        let (pieces, _) = plan(&vec![&one; many], &candidates, &limits, usize::MAX);
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.members.len()).collect();
        assert_eq!(sizes, [1_000_000, 1]);
    }

    proptest! {
        #[test]
        fn every_request_is_planned_once_within_the_limits(
            items in proptest::collection::vec((0_u8..6, 0_u64..120), 0..60),
            max_items in 0_usize..6,
        ) {
            let owned = requests(&items.iter().map(|i| i.0).collect::<Vec<_>>());
            let borrowed: Vec<&Request> = owned.iter().collect();
            let candidates: Vec<(usize, u64)> =
                items.iter().enumerate().map(|(i, item)| (i, item.1)).collect();
            let (pieces, refused) = plan(&borrowed, &candidates, &LIMITS, max_items);
            let mut seen: Vec<usize> = refused.iter().map(|r| r.0).collect();
            for piece in &pieces {
                prop_assert!(!piece.members.is_empty());
                prop_assert!(piece.members.len() <= max_items.clamp(1, 3));
                let bytes: u64 = piece.members.iter().map(|&m| items[m].1 + 5).sum();
                prop_assert!(bytes + 10 <= 100);
                let first = borrowed[piece.members[0]];
                prop_assert!(piece.members.iter().all(|&m| borrowed[m].kind == first.kind
                    && borrowed[m].model == first.model));
                prop_assert!(piece.members.is_sorted());
                seen.extend(&piece.members);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
        }
    }
}
