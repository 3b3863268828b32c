//! Warnings that accompany a successful response.

/// A list of warnings in the order of their creation. Each is a text for the caller, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Appends a warning.
    pub fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

impl std::ops::Deref for Warnings {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl From<Vec<String>> for Warnings {
    fn from(texts: Vec<String>) -> Self {
        Self(texts)
    }
}

impl Extend<String> for Warnings {
    fn extend<T: IntoIterator<Item = String>>(&mut self, texts: T) {
        self.0.extend(texts);
    }
}

impl FromIterator<String> for Warnings {
    fn from_iter<T: IntoIterator<Item = String>>(texts: T) -> Self {
        Self(texts.into_iter().collect())
    }
}

impl IntoIterator for Warnings {
    type Item = String;
    type IntoIter = std::vec::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_keep_their_insertion_order() {
        let mut warnings = Warnings::from(vec!["a".to_owned()]);
        assert!(Warnings::default().is_empty() && !warnings.is_empty());
        warnings.add("c");
        warnings.extend(Some("b".to_owned()));
        assert_eq!(*warnings, ["a", "c", "b"]);
        assert_eq!(warnings.into_iter().collect::<Vec<_>>(), ["a", "c", "b"]);
    }
}
