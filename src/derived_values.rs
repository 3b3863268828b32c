//! A cache of values derived from another value, dropped together with it. An issuer, for example, caches the parts of
//! responses that are rendered from it, so that they are rendered once per issuer and not per certificate.

use std::any::Any;
use std::sync::OnceLock;

/// At most one value per type, each computed on first use.
#[derive(Default)]
pub struct DerivedValues(OnceLock<Box<DerivedValueNode>>);

/// A clone starts empty, because the cloned value may be modified.
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
    /// Returns the value of type `T`, computing it with `make` if it is missing.
    pub fn get<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let mut node = self;
        loop {
            let link =
                node.0.get_or_init(|| Box::new(DerivedValueNode { value: Box::new(make()), next: Self::default() }));
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
    fn each_type_is_made_once() {
        let derived = DerivedValues::default();
        let made = std::cell::Cell::new(0);
        let count = || made.set(made.get() + 1);
        for _ in 0..2 {
            assert_eq!(derived.get(|| (count(), "a").1), &"a");
            assert_eq!(derived.get(|| (count(), 1_u8).1), &1);
        }
        assert_eq!(made.get(), 2);
        let copy = derived.clone();
        assert_eq!((copy.get(|| (count(), "b").1), derived.get(|| "c")), (&"b", &"a"));
    }
}
