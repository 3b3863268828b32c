//! A cache of values derived from another value, dropped together with it. An issuer, for example, caches the parts of
//! responses that are rendered from it, so that they are rendered once per issuer and not per certificate.

use std::any::Any;
use std::sync::OnceLock;

/// Cached values, at most one per type, each computed on first use.
#[derive(Default)]
pub struct DerivedValues(OnceLock<Box<DerivedValueNode>>);

/// A clone of the cache is empty. It belongs to a clone of the owner, which may be modified, so values that were
/// derived from the original owner could be stale.
impl Clone for DerivedValues {
    fn clone(&self) -> Self {
        Self::default()
    }
}

struct DerivedValueNode {
    value: Box<dyn Any + Send + Sync>,
    next: DerivedValues,
}

impl DerivedValues {
    /// Returns the value of type `T`, computing it with `compute` if it is missing.
    pub fn get<T: Any + Send + Sync>(&self, compute: impl Fn() -> T) -> &T {
        let mut node = self;
        loop {
            let link =
                node.0.get_or_init(|| Box::new(DerivedValueNode { value: Box::new(compute()), next: Self::default() }));
            match link.value.downcast_ref() {
                Some(value) => return value,
                None => node = &link.next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_value_is_computed_once_per_type() {
        let derived = DerivedValues::default();
        let computed = std::cell::Cell::new(0);
        let count = || computed.set(computed.get() + 1);
        for _ in 0..2 {
            assert_eq!(derived.get(|| (count(), "a").1), &"a");
            assert_eq!(derived.get(|| (count(), 1_u8).1), &1);
        }
        assert_eq!(computed.get(), 2);
        let copy = derived.clone();
        assert_eq!((copy.get(|| (count(), "b").1), derived.get(|| "c")), (&"b", &"a"));
    }
}
