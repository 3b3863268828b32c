//! RSA moduli that are easy to factor: those with a small factor, perfect powers, and products of two close factors.
//! The checks take a few microseconds for 2048 bits; a primality test would take as long as a signature.

use num_bigint::BigUint;

/// The odd primes below 752, which trial division commonly covers.
const SMALL_PRIMES: [u64; 132] = {
    let mut primes = [0; 132];
    let mut count = 0;
    let mut candidate = 3;
    while candidate < 752 {
        let mut at = 0;
        let mut is_prime = true;
        while at < count {
            is_prime &= candidate % primes[at] != 0;
            at += 1;
        }
        if is_prime {
            primes[count] = candidate;
            count += 1;
        }
        candidate += 2;
    }
    assert!(count == 132);
    primes
};

pub(super) fn violated_factor_rule(modulus: &BigUint) -> Option<&'static str> {
    if has_small_factor(modulus) {
        return Some(
            "the RSA modulus has a factor below 752 (CA/Browser Forum baseline requirements 6.1.6, \
             NIST SP 800-89 5.3.3)",
        );
    }
    let root = modulus.sqrt();
    let rest = modulus - &root * &root;
    if rest == BigUint::ZERO || [3, 5, 7].iter().any(|exponent| is_power(modulus, *exponent)) {
        return Some("the RSA modulus is a perfect power (CA/Browser Forum baseline requirements 6.1.6)");
    }
    has_close_factors(&root, &rest).then_some(
        "the RSA modulus has two factors so close that Fermat's method finds them (CA/Browser Forum baseline \
         requirements 6.1.1.3)",
    )
}

pub(super) fn remainder(number: &BigUint, small: u64) -> u64 {
    (number % small).try_into().expect("a remainder is below its 64-bit divisor")
}

/// `true` if one of [`SMALL_PRIMES`] divides the modulus. Divides by products of primes that fit into a machine word,
/// to save divisions.
fn has_small_factor(modulus: &BigUint) -> bool {
    let mut primes = &SMALL_PRIMES[..];
    while !primes.is_empty() {
        let mut product = 1_u64;
        let mut count = 0;
        while let Some(more) = primes.get(count).and_then(|prime| product.checked_mul(*prime)) {
            (product, count) = (more, count + 1);
        }
        let (these, others) = primes.split_at(count);
        let left = remainder(modulus, product);
        if these.iter().any(|prime| left.is_multiple_of(*prime)) {
            return true;
        }
        primes = others;
    }
    false
}

/// `true` if a number is a perfect power with this exponent. A power is a residue of that degree modulo every prime `p`
/// with `p mod exponent = 1`. At most 1 in 2^50 other numbers passes this test for all such primes in [`SMALL_PRIMES`].
fn is_power(number: &BigUint, exponent: u64) -> bool {
    let mut primes = SMALL_PRIMES.iter().filter(|prime| *prime % exponent == 1);
    primes.all(|&prime| power_mod(remainder(number, prime), (prime - 1) / exponent, prime) == 1)
}

fn power_mod(base: u64, exponent: u64, modulus: u64) -> u64 {
    (0..exponent).fold(1, |power, _| power * base % modulus)
}

/// Runs 100 rounds of Fermat's method on the number `root² + rest`: `true` if the difference between a larger square
/// and the number is itself a square.
fn has_close_factors(root: &BigUint, rest: &BigUint) -> bool {
    let root_left = remainder(root, SIEVE_PRODUCT);
    let rest_left = remainder(rest, SIEVE_PRODUCT);
    (1..=100).any(|round| {
        let left = (round * round + 2 * round * root_left + SIEVE_PRODUCT - rest_left) % SIEVE_PRODUCT;
        // The number is the difference of `(root + round)²` and `root² + rest`. It is not negative, because `rest` is
        // at most `2 · root`.
        may_be_square(left) && is_square(&(root * (2 * round) + round * round - rest))
    })
}

fn is_square(number: &BigUint) -> bool {
    let root = number.sqrt();
    &root * &root == *number
}

/// Moduli to detect non-squares: for each modulus, at least about half of the remainders cannot be the remainder of a
/// square.
const SIEVE_MODULI: [u64; 6] = [64, 63, 65, 11, 17, 19];
const SIEVE_PRODUCT: u64 = 64 * 63 * 65 * 11 * 17 * 19;
/// For each of [`SIEVE_MODULI`], the bit set of the remainders that squares have.
const SQUARES_BY_SIEVE: [u128; SIEVE_MODULI.len()] = {
    let mut squares = [0; SIEVE_MODULI.len()];
    let mut at = 0;
    while at < SIEVE_MODULI.len() {
        let mut number = 0;
        while number < SIEVE_MODULI[at] {
            squares[at] |= 1 << (number * number % SIEVE_MODULI[at]);
            number += 1;
        }
        at += 1;
    }
    squares
};

/// `true` if a number with this remainder modulo [`SIEVE_PRODUCT`] may be a square. 1 in 400 non-squares passes.
fn may_be_square(left: u64) -> bool {
    SIEVE_MODULI.iter().zip(SQUARES_BY_SIEVE).all(|(sieve, squares)| (squares >> (left % sieve)) & 1 == 1)
}

#[cfg(test)]
mod tests;
