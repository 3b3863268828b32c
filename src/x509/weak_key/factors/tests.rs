use proptest::prelude::*;

use super::*;
use crate::x509::weak_key::number::number;

fn small(value: u128) -> Number {
    number(&value.to_be_bytes())
}

fn refused(modulus: &[u32], text: &str) -> bool {
    rule(modulus).is_some_and(|rule| rule.contains(text))
}

/// `number^exponent`, of a number below 2^31.
fn powered(number: u64, exponent: u32) -> Number {
    (0..exponent).fold(vec![1], |power, _| number::times(&power, number, 0))
}

#[test]
fn the_small_primes_are_all_of_them() {
    let is_prime = |n: &u64| (2..*n).all(|factor| n % factor != 0);
    assert!(SMALL_PRIMES.iter().copied().eq((3..752).filter(is_prime)));
    assert!(PRODUCTS.iter().all(|product| product.value.wrapping_mul(product.inverse) == 1));
    assert_eq!((PRODUCTS[0].first, PRODUCTS[17].end), (0, SMALL_PRIMES.len()));
    assert!(PRODUCTS.windows(2).all(|two| two[0].end == two[1].first));
}

#[test]
fn every_small_factor_is_found_and_the_next_prime_is_none() {
    // 2^2203 − 1 is a prime.
    let mut large = vec![u32::MAX; 69];
    large[68] = (1 << 27) - 1;
    assert!(!has_small_factor(&large));
    for prime in SMALL_PRIMES {
        assert!(has_small_factor(&number::times(&large, prime, 0)), "{prime}");
        assert!(has_small_factor(&small(u128::from(prime))));
    }
    assert!(!has_small_factor(&number::times(&large, 757, 0)));
    assert_eq!(rule(&number::times(&large, 757, 0)), None);
}

#[test]
fn powers_are_found() {
    for exponent in 2..=10 {
        assert!(refused(&powered(1_000_003, exponent), "is the power of a number"), "{exponent}");
    }
    // The eleventh is one of those that are not looked for.
    assert!(!refused(&powered(1_000_003, 11), "is the power of a number"));
}

#[test]
fn a_hundred_rounds_find_what_they_find() {
    // Of a product of a ± b the root is at least b²/2a below a: the round that finds it.
    let (a, b) = (1_u128 << 60, |rounds: u128| (rounds << 61).isqrt() | 1);
    for rounds in [1, 50, 99] {
        assert!(has_close_factors_of(a * a - b(rounds) * b(rounds)), "{rounds}");
    }
    for rounds in [101, 150, 1000] {
        assert!(!has_close_factors_of(a * a - b(rounds) * b(rounds)), "{rounds}");
    }
}

fn has_close_factors_of(n: u128) -> bool {
    let (root, rest) = number::root(&small(n));
    has_close_factors(&root, &rest)
}

proptest! {
    #[test]
    fn small_factors_are_those_of_the_processor(n: u128) {
        let any = SMALL_PRIMES.iter().any(|prime| n % u128::from(*prime) == 0);
        prop_assert_eq!(has_small_factor(&small(n)), any);
    }

    #[test]
    fn rounds_are_those_that_are_done_one_by_one(n in 1..u128::MAX >> 8) {
        let n = n | 1;
        let root = n.isqrt();
        let found = (1..=100).any(|round| {
            let above = (root + round) * (root + round) - n;
            above.isqrt().pow(2) == above
        });
        prop_assert_eq!(has_close_factors_of(n), found);
    }

    #[test]
    fn rounds_on_small_numbers_too(n in 1..1_u128 << 40) {
        let root = n.isqrt();
        let found = (1..=100).any(|round| ((root + round) * (root + round) - n).isqrt().pow(2) == (root + round) * (root + round) - n);
        prop_assert_eq!(has_close_factors_of(n), found);
    }

    #[test]
    fn close_factors_of_any_size_are_found(octets in prop::collection::vec(any::<u8>(), 20..128), apart in 0..1_u64 << 30) {
        // (a − apart)(a + apart) = a² − apart².
        let a = number(&[&[0xc5], &octets[..]].concat());
        let mut n = vec![0; 2 * a.len()];
        let mut minus = n.clone();
        for (at, digit) in a.iter().enumerate() {
            number::take(&mut minus[at..], *digit, &a);
        }
        number::take(&mut n, 1, &minus);
        number::take(&mut n, 1, &small(u128::from(apart) * u128::from(apart)));
        let (root, rest) = number::root(&n);
        prop_assert!(has_close_factors(&root, &rest) || apart == 0 && number::is_zero(&rest));
    }

    #[test]
    fn what_passes_no_sieve_is_no_square(n: u64) {
        let square = u128::from(n) * u128::from(n);
        prop_assert!(may_be_square((square % u128::from(SIEVE)) as u64));
    }
}
