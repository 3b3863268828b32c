//! Random bytes and identifiers, all from aws-lc's generator.

use std::cell::RefCell;

/// The base 62 digits in ASCII order.
pub(crate) const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Fills `out` with random bytes.
///
/// # Panics
/// Panics when the generator fails: nothing can be done safely without randomness.
pub fn fill(out: &mut [u8]) {
    aws_lc_rs::rand::fill(out).expect("random bytes from aws-lc's generator");
}

/// Returns `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    fill(&mut out);
    out
}

/// Returns `N` random bytes for values that are unique but not secret. The bytes come from a thread-local stock,
/// because each call of the generator has a fixed cost that exceeds the cost of a few bytes.
pub fn unique_bytes<const N: usize>() -> [u8; N] {
    const STOCK_BYTES: usize = 1024;
    const { assert!(N <= STOCK_BYTES) };
    thread_local! {
        /// Random bytes, and the number of unused ones at the beginning of the array.
        static STOCK: RefCell<([u8; STOCK_BYTES], usize)> = const { RefCell::new(([0; STOCK_BYTES], 0)) };
    }
    // While a thread exits, its stock may already be destroyed.
    let from_stock = STOCK.try_with(|stock| {
        let (stock, left) = &mut *stock.borrow_mut();
        if *left < N {
            fill(stock);
            *left = STOCK_BYTES;
        }
        *left -= N;
        std::array::from_fn(|at| stock[*left + at])
    });
    from_stock.unwrap_or_else(|_| bytes())
}

/// Returns `len` uniformly random characters of `[0-9A-Za-z]` (5.95 bits each).
pub fn base62(len: usize) -> String {
    base62_from(len, bytes::<64>)
}

/// Like [`base62`], but from [`unique_bytes`]: for unique texts that are not secret.
pub fn unique_base62(len: usize) -> String {
    base62_from(len, unique_bytes::<32>)
}

fn base62_from<const N: usize>(len: usize, random_bytes: impl Fn() -> [u8; N]) -> String {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        for byte in random_bytes() {
            // 248 = 4 × 62: accepting larger bytes would bias towards the first characters.
            if byte < 248 && text.len() < len {
                text.push(char::from(BASE62[usize::from(byte % 62)]));
            }
        }
    }
    text
}

/// Returns a random UUID (version 4, RFC 9562) in its text form.
pub fn uuid() -> String {
    uuid::Builder::from_random_bytes(bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn unique_bytes_never_repeat_across_threads_and_sizes() {
        let take = || {
            (0..500).map(|_| unique_bytes::<16>()).chain((0..50).map(|_| [0; 16].map(|_: u8| unique_bytes::<1>()[0])))
        };
        let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(move || take().collect::<Vec<_>>())).collect();
        let all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_ne!(unique_bytes::<1024>(), unique_bytes::<1024>());
    }
}
