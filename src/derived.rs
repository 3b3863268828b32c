//! What others make of a value, kept with it: whoever words answers about an issuer does so once, not for every
//! certificate, and it goes when the issuer changes.

use std::any::Any;
use std::sync::OnceLock;

/// Values of several types, each made when it is first asked for.
#[derive(Default)]
pub struct Derived(OnceLock<Box<Link>>);

/// What was made of a value is not of its copy, which may be changed.
impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

struct Link {
    value: Box<dyn Any + Send + Sync>,
    next: Derived,
}

impl Derived {
    /// The value of this type; `make` is called when there is none yet.
    pub fn get<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let mut place = self;
        loop {
            let link = place.0.get_or_init(|| Box::new(Link { value: Box::new(make()), next: Self::default() }));
            match link.value.downcast_ref() {
                Some(value) => return value,
                None => place = &link.next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_made_once() {
        let (derived, made) = (Derived::default(), std::cell::Cell::new(0));
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
