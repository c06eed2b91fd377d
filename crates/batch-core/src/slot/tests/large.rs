//! Values so large that few go into a block.

use super::*;

#[test]
#[expect(clippy::large_stack_arrays, reason = "such values are what it is about")]
fn a_block_of_large_values_has_fewer_cells() {
    #[repr(align(4096))]
    struct Page([u8; 3]);

    assert_eq!((cells::<()>(), cells::<[u8; 500]>()), (MOST_CELLS, MOST_CELLS));
    assert_eq!((cells::<[u8; 1 << 12]>(), cells::<[u8; 1 << 20]>()), (15, 1));
    // Each cell is in its place, whatever its size and alignment are.
    let mut arena = Arena::new(Header::from("header"));
    let (fillers, claims): (Vec<_>, Vec<_>) = (0..20).map(|_| arena.pair()).unzip();
    for (filler, number) in fillers.into_iter().zip(0..) {
        fill(filler, Page([number; 3]));
    }
    for (claim, number) in claims.into_iter().zip(0..) {
        assert!(matches!(claim.try_take(), Ok(Fate::Value(page)) if page.0 == [number; 3]));
    }
    let mut arena = Arena::new(Header::from("header"));
    assert_eq!(arena.left(), 1);
    let (mut fillers, mut claims) = arena.row(5);
    assert_eq!((fillers.len(), claims.len()), (1, 1), "a row ends with its block");
    fill(fillers.next().unwrap(), [7; 33 << 10]);
    claims.take_done(|fate| assert!(fate == Fate::Value([7; 33 << 10])));
}
