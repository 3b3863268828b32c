//! The arithmetic of large numbers that judging a modulus takes: remainders of small numbers, and square roots.

const BITS: u32 = u32::BITS;

/// A number: its digits in base 2^32, the lowest first.
pub(super) type Number = Vec<u32>;

/// Reads a big-endian number.
pub(super) fn number(octets: &[u8]) -> Number {
    let (first, words) = octets.as_rchunks::<4>();
    let first = first.iter().fold(0, |digit, octet| digit << 8 | u32::from(*octet));
    words.iter().rev().map(|word| u32::from_be_bytes(*word)).chain([first]).collect()
}

pub(super) fn is_zero(number: &[u32]) -> bool {
    number.iter().all(|digit| *digit == 0)
}

/// A number modulo one below 2^32.
pub(super) fn remainder(number: &[u32], small: u64) -> u64 {
    number.iter().rev().fold(0, |rest, digit| (rest << BITS | u64::from(*digit)) % small)
}

/// `number · factor + more`, of a factor below 2^31.
pub(super) fn times(number: &[u32], factor: u64, more: u64) -> Number {
    let mut carry = more;
    let mut product: Number = Vec::with_capacity(number.len() + 2);
    for digit in number {
        let sum = u64::from(*digit) * factor + carry;
        product.push(sum as u32);
        carry = sum >> BITS;
    }
    product.extend([carry as u32, (carry >> BITS) as u32]);
    product
}

/// Takes `factor · less` off `number`, modulo its size: whether that is below zero. `less` has no more digits.
pub(super) fn take(number: &mut [u32], factor: u32, less: &[u32]) -> bool {
    let mut carry = 0;
    let (low, high) = number.split_at_mut(less.len());
    for (digit, less) in low.iter_mut().zip(less) {
        let product = u64::from(factor) * u64::from(*less) + carry;
        let (difference, borrow) = digit.overflowing_sub(product as u32);
        (*digit, carry) = (difference, (product >> BITS) + u64::from(borrow));
    }
    for digit in high {
        let (difference, borrow) = digit.overflowing_sub(carry as u32);
        (*digit, carry) = (difference, u64::from(borrow));
    }
    carry != 0
}

/// Adds `more`, of one digit less than `number`, moved up by a digit, and `low`: whether that is above its size.
fn put(number: &mut [u32], low: u64, more: &[u32]) -> bool {
    let mut carry = low;
    for (digit, more) in number.iter_mut().zip([0].iter().chain(more).chain([0].iter().cycle())) {
        let sum = u64::from(*digit) + u64::from(*more) + carry;
        (*digit, carry) = (sum as u32, sum >> BITS);
    }
    carry != 0
}

/// Whether a number is a square.
pub(super) fn is_square(number: &[u32]) -> bool {
    is_zero(&Root::of(number).rest)
}

/// The square root of a number, rounded down, and what the number is above its square.
pub(super) fn root(number: &[u32]) -> (Number, Number) {
    let Root { twice, rest, shift } = Root::of(number);
    if shift == 0 {
        return (shifted_right(&twice, 1), rest);
    }
    let root = shifted_right(&twice, 1 + shift / 2);
    let mut rest = number.to_vec();
    rest.resize(2 * root.len(), 0);
    for (at, digit) in root.iter().enumerate() {
        take(&mut rest[at..], *digit, &root);
    }
    (root, rest)
}

/// A root in the making, of a number that was moved up until its highest bits are in the highest digit.
struct Root {
    /// Twice the digits that are known.
    twice: Number,
    /// What the number is above the square of these digits.
    rest: Number,
    /// How many bits it was moved up, an even number.
    shift: u32,
}

impl Root {
    fn of(number: &[u32]) -> Self {
        let len = number.iter().rposition(|digit| *digit != 0).map_or(1, |last| last + 1);
        let count = len.div_ceil(2);
        let zeros = (2 * count - len) as u32 * BITS + number[len - 1].leading_zeros();
        // Of zero every bit is one.
        let shift = zeros.min(2 * BITS - 1) & !1;
        let mut rest = shifted_left(&number[..len], shift, 2 * count);
        let mut twice = vec![0; count + 1];
        let highest = u64::from(rest[2 * count - 1]) << BITS | u64::from(rest[2 * count - 2]);
        let digit = highest.isqrt();
        set(&mut rest[2 * count - 2..], highest - digit * digit);
        set(&mut twice[count - 1..], 2 * digit);
        let mut root = Self { twice, rest, shift };
        (0..count - 1).rev().for_each(|at| root.next_digit(at));
        root
    }

    /// The digit `q` at this place: the largest with `q(2·known·2^32 + q)` not above the rest. It is estimated by the
    /// highest digits, which is too much by a few at most, because the highest bit of the known ones is set.
    fn next_digit(&mut self, at: usize) {
        let twice = &mut self.twice[at..];
        let known = twice.len();
        let rest = &mut self.rest[2 * at..2 * at + known + 1];
        let high = rest[known - 2..].iter().rev().fold(0, |high, digit| high << BITS | u128::from(*digit));
        let divisor = u128::from(twice[known - 1]) << BITS | u128::from(twice[known - 2]);
        let mut digit = u32::try_from(high / divisor).unwrap_or(u32::MAX);
        twice[0] = digit;
        let mut is_below = take(rest, digit, twice);
        while is_below {
            digit -= 1;
            is_below = !put(rest, 2 * u64::from(digit) + 1, &twice[1..]);
        }
        twice[0] = digit << 1;
        twice[1] |= digit >> (BITS - 1);
    }
}

fn set(digits: &mut [u32], value: u64) {
    digits[0] = value as u32;
    digits[1] = (value >> BITS) as u32;
}

fn shifted_left(number: &[u32], by: u32, len: usize) -> Number {
    let (whole, part) = ((by / BITS) as usize, by % BITS);
    let digit = |at: usize| at.checked_sub(whole).and_then(|at| number.get(at)).map_or(0, |digit| u64::from(*digit));
    let below = |at: usize| at.checked_sub(1).map_or(0, digit);
    (0..len).map(|at| ((digit(at) << BITS | below(at)) << part >> BITS) as u32).collect()
}

fn shifted_right(number: &[u32], by: u32) -> Number {
    let (whole, part) = ((by / BITS) as usize, by % BITS);
    let digit = |at: usize| number.get(at).map_or(0, |digit| u64::from(*digit));
    (whole..number.len()).map(|at| ((digit(at + 1) << BITS | digit(at)) >> part) as u32).collect()
}

#[cfg(test)]
mod tests;
