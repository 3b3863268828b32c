use proptest::prelude::*;

use super::*;

fn small(value: u128) -> Number {
    number(&value.to_be_bytes())
}

fn value(number: &[u32]) -> u128 {
    number.iter().rev().fold(0, |value, digit| value << BITS | u128::from(*digit))
}

/// `one · other + more`, as one does it by hand.
fn product(one: &[u32], other: &[u32], more: &[u32]) -> Number {
    let mut product = vec![0; (one.len() + other.len()).max(more.len()) + 1];
    product[..more.len()].copy_from_slice(more);
    for (at, digit) in one.iter().enumerate() {
        let mut carry = 0;
        for (place, digit_of) in product[at..].iter_mut().zip(other.iter().chain(&[0, 0, 0])) {
            let sum = u64::from(*place) + u64::from(*digit) * u64::from(*digit_of) + carry;
            (*place, carry) = (sum as u32, sum >> BITS);
        }
    }
    while product.last() == Some(&0) {
        product.pop();
    }
    product
}

fn trimmed(number: &[u32]) -> &[u32] {
    &number[..number.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1)]
}

#[track_caller]
fn check_root(number: &[u32]) {
    let (root, rest) = root(number);
    assert_eq!(product(&root, &root, &rest), trimmed(number), "root² + rest");
    // At most twice the root: `2 · root − rest` is not below zero.
    let mut twice = times(&root, 2, 0);
    let rest = trimmed(&rest);
    assert!(rest.len() <= twice.len() && !take(&mut twice, 1, rest), "the next root is too large");
    assert_eq!(is_square(number), rest.is_empty());
}

#[test]
fn roots_at_the_edges() {
    for value in 0..=300_u128 {
        check_root(&small(value));
    }
    for bits in 0..128 {
        for value in [(1_u128 << bits) - 1, 1 << bits, (1 << bits) + 1] {
            check_root(&small(value));
        }
    }
    for len in 1..20 {
        let ones = vec![u32::MAX; len];
        check_root(&ones);
        for square in [product(&ones, &ones, &[]), product(&ones, &ones, &[1])] {
            check_root(&square);
        }
        // The digits that an estimate misses by most: a one and zeros above, ones below.
        let mut sparse = vec![0; len];
        sparse[len - 1] = 1 << 31;
        check_root(&product(&sparse, &sparse, &ones));
        sparse[0] = u32::MAX;
        check_root(&product(&sparse, &sparse, &sparse));
    }
}

#[test]
fn octets_are_read_with_the_lowest_digit_first() {
    assert_eq!(number(&[1, 2, 3, 4, 5]), [0x0203_0405, 1]);
    assert_eq!(number(&[1, 2, 3, 4]), [0x0102_0304, 0]);
    assert!(is_zero(&number(&[])));
}

proptest! {
    #[test]
    fn a_root_is_the_root(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        check_root(&number(&octets));
    }

    #[test]
    fn a_square_is_one_and_its_neighbours_are_none(octets in prop::collection::vec(any::<u8>(), 1..150)) {
        let root = number(&octets);
        prop_assume!(trimmed(&root).iter().any(|digit| *digit > 1));
        let mut square = product(&root, &root, &[]);
        prop_assert!(is_square(&square));
        prop_assert!(!is_square(&product(&root, &root, &[1])));
        take(&mut square, 1, &[1]);
        prop_assert!(!is_square(&square));
        check_root(&square);
    }

    #[test]
    fn small_numbers_are_reckoned_as_the_processor_does(a: u128, b: u64, factor in 0..1_u64 << 31, more: u32) {
        prop_assert_eq!(u128::from(remainder(&small(a), u64::from(more) + 1)), a % (u128::from(more) + 1));
        let wide = u128::from(b);
        prop_assert_eq!(value(&times(&small(wide), factor, u64::from(more))[..4]), wide * u128::from(factor) + u128::from(more));
        let mut difference = small(a);
        let below = take(&mut difference[..4], more, &small(wide)[..2]);
        prop_assert_eq!(value(&difference), a.wrapping_sub(wide * u128::from(more)));
        prop_assert_eq!(below, a < wide * u128::from(more));
        prop_assert_eq!(value(&root(&small(a)).0), a.isqrt());
    }
}
