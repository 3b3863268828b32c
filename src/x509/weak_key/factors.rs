//! RSA moduli that anybody can factor: a small factor, a power of one prime, two primes next to each other.
//! A few microseconds for 2048 bits, where a test for primes would take as long as a signature.

use super::number::{self, Number, remainder};

/// What everybody's trial division finds: the odd primes below 752.
const SMALL_PRIMES: [u64; 132] = {
    let (mut primes, mut count, mut candidate) = ([0; 132], 0, 3);
    while candidate < 752 {
        let (mut at, mut is_prime) = (0, true);
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

/// A product of neighbours among [`SMALL_PRIMES`], and where they are.
#[derive(Clone, Copy)]
struct Product {
    value: u64,
    /// Its inverse modulo 2^64.
    inverse: u64,
    first: usize,
    end: usize,
}

const PRODUCTS: [Product; 18] = {
    let (mut products, mut count, mut first) = ([Product { value: 1, inverse: 1, first: 0, end: 0 }; 18], 0, 0);
    while first < SMALL_PRIMES.len() {
        let (mut value, mut end) = (1_u64, first);
        while end < SMALL_PRIMES.len()
            && let Some(product) = value.checked_mul(SMALL_PRIMES[end])
        {
            (value, end) = (product, end + 1);
        }
        products[count] = Product { value, inverse: inverse(value), first, end };
        (first, count) = (end, count + 1);
    }
    assert!(count == 18);
    products
};

/// The inverse of an odd number modulo 2^64: each step of Newton's doubles the bits that are right, three at first.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// The rule that an odd modulus breaks.
pub(super) fn rule(modulus: &[u32]) -> Option<&'static str> {
    if has_small_factor(modulus) {
        return Some(
            "the RSA modulus has a factor below 752 (CA/Browser Forum baseline requirements 6.1.6, \
             NIST SP 800-89 5.3.3)",
        );
    }
    let (root, rest) = number::root(modulus);
    if number::is_zero(&rest) || [3, 5, 7].iter().any(|exponent| is_power(modulus, *exponent)) {
        return Some("the RSA modulus is the power of a number (CA/Browser Forum baseline requirements 6.1.6)");
    }
    has_close_factors(&root, &rest).then_some(
        "the RSA modulus has two factors so close that Fermat's method finds them (CA/Browser Forum baseline \
         requirements 6.1.1.3)",
    )
}

/// Divides by all products at once, from the lowest limb up: what is left of each is the number times a power of
/// 2^-64, which has the same odd factors (Montgomery's reduction).
fn has_small_factor(modulus: &[u32]) -> bool {
    let mut left = [0_u64; PRODUCTS.len()];
    for pair in modulus.chunks(2) {
        let limb = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
        for (left, product) in left.iter_mut().zip(&PRODUCTS) {
            let (difference, borrow) = limb.overflowing_sub(*left);
            let quotient = difference.wrapping_mul(product.inverse);
            *left = (u128::from(quotient) * u128::from(product.value) >> 64) as u64 + u64::from(borrow);
        }
    }
    let divides = |(left, product): (&u64, &Product)| {
        SMALL_PRIMES[product.first..product.end].iter().any(|prime| left % prime == 0)
    };
    left.iter().zip(&PRODUCTS).any(divides)
}

/// Whether a number is the power with this exponent: then it is one modulo every prime. Modulo those of
/// [`SMALL_PRIMES`] that tell, one more than a multiple of the exponent, others are one once in 2^50 or less.
fn is_power(number: &[u32], exponent: u64) -> bool {
    let mut tell = SMALL_PRIMES.iter().filter(|prime| *prime % exponent == 1);
    tell.all(|&prime| power(remainder(number, prime), (prime - 1) / exponent, prime) == 1)
}

fn power(base: u64, exponent: u64, modulus: u64) -> u64 {
    (0..exponent).fold(1, |power, _| power * base % modulus)
}

/// A hundred rounds of Fermat's method on `root² + rest`: whether what a larger square is above it is a square.
fn has_close_factors(root: &[u32], rest: &[u32]) -> bool {
    let (root_left, rest_left) = (remainder(root, SIEVE), remainder(rest, SIEVE));
    (1..=100).any(|round| {
        let left = (round * round + 2 * round * root_left + SIEVE - rest_left) % SIEVE;
        may_be_square(left) && number::is_square(&above(root, rest, round))
    })
}

/// What `(root + round)²` is above `root² + rest`.
fn above(root: &[u32], rest: &[u32], round: u64) -> Number {
    let mut above = number::times(root, 2 * round, round * round);
    let len = above.len().min(rest.len());
    number::take(&mut above, 1, &rest[..len]);
    above
}

/// What squares are told by: modulo each of these, half of the numbers or more are none.
const SIEVES: [u64; 6] = [64, 63, 65, 11, 17, 19];
/// Their product.
const SIEVE: u64 = 64 * 63 * 65 * 11 * 17 * 19;
/// For each, the bits of its squares.
const SQUARES: [u128; SIEVES.len()] = {
    let (mut squares, mut at) = ([0; SIEVES.len()], 0);
    while at < SIEVES.len() {
        let mut number = 0;
        while number < SIEVES[at] {
            squares[at] |= 1 << (number * number % SIEVES[at]);
            number += 1;
        }
        at += 1;
    }
    squares
};

/// Whether a number may be a square, by what it leaves modulo [`SIEVE`]. One of four hundred others may.
fn may_be_square(left: u64) -> bool {
    SIEVES.iter().zip(SQUARES).all(|(sieve, squares)| squares >> (left % sieve) & 1 == 1)
}

#[cfg(test)]
mod tests;
