use proptest::prelude::*;

use super::*;

fn violates_rule(modulus: &BigUint, text: &str) -> bool {
    violated_factor_rule(modulus).is_some_and(|rule| rule.contains(text))
}

#[test]
fn small_primes_are_all_odd_primes_below_752() {
    let is_prime = |n: &u64| (2..*n).all(|factor| !n.is_multiple_of(factor));
    assert!(SMALL_PRIMES.iter().copied().eq((3..752).filter(is_prime)));
}

#[test]
fn small_factors_are_found_up_to_the_limit() {
    // 2^2203 − 1 is prime.
    let large = (BigUint::from(1_u8) << 2203) - 1_u8;
    assert!(!has_small_factor(&large));
    for prime in SMALL_PRIMES {
        assert!(has_small_factor(&(&large * prime)), "{prime}");
        assert!(has_small_factor(&BigUint::from(prime)));
    }
    assert_eq!(violated_factor_rule(&(large * 757_u32)), None);
}

#[test]
fn perfect_powers_are_found_up_to_the_tenth() {
    let power = |exponent| BigUint::from(1_000_003_u32).pow(exponent);
    for exponent in 2..=10 {
        assert!(violates_rule(&power(exponent), "is a perfect power"), "{exponent}");
    }
    // The check does not cover eleventh powers.
    assert!(!violates_rule(&power(11), "is a perfect power"));
}

#[test]
fn fermat_search_ends_after_100_rounds() {
    // The square root of (a + b)(a − b) is below a; the difference is about b²/2a. That difference determines the round
    // in which the search finds the factors.
    let a = 1_u128 << 60;
    let b = |rounds: u128| (rounds << 61).isqrt() | 1;
    for rounds in [1, 50, 99] {
        assert!(has_close_factors_of(a * a - b(rounds) * b(rounds)), "{rounds}");
    }
    for rounds in [101, 150, 1000] {
        assert!(!has_close_factors_of(a * a - b(rounds) * b(rounds)), "{rounds}");
    }
}

fn has_close_factors_of(n: impl Into<BigUint>) -> bool {
    let n = n.into();
    let root = n.sqrt();
    has_close_factors(&root, &(n - &root * &root))
}

proptest! {
    #[test]
    fn small_factor_search_agrees_with_division(n: u128) {
        let any = SMALL_PRIMES.iter().any(|prime| n % u128::from(*prime) == 0);
        prop_assert_eq!(has_small_factor(&n.into()), any);
    }

    #[test]
    fn close_factor_search_agrees_with_single_rounds(n in prop_oneof![1..u128::MAX >> 8, 1..1_u128 << 40]) {
        let root = n.isqrt();
        let found = (1..=100).any(|round| {
            let above = (root + round) * (root + round) - n;
            above.isqrt().pow(2) == above
        });
        prop_assert_eq!(has_close_factors_of(n), found);
    }

    #[test]
    fn close_factors_of_any_size_are_found(
        octets in prop::collection::vec(any::<u8>(), 20..128),
        apart in 1..1_u64 << 30,
    ) {
        let a = BigUint::from_bytes_be(&[&[0xc5], &octets[..]].concat());
        prop_assert!(has_close_factors_of((&a - apart) * (a + apart)));
    }

    #[test]
    fn every_square_passes_the_sieve(n: u64) {
        let square = u128::from(n) * u128::from(n);
        prop_assert!(may_be_square((square % u128::from(SIEVE_PRODUCT)) as u64));
    }
}
