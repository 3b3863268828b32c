//! The query of a request: parameters, pages, lists of values.
//!
//! Parameters that nobody knows are ignored: known clients send some. `[` and `]` may be sent as they are
//! or percent-encoded; links give them encoded.

use crate::projects::page::Page;
use crate::projects::refusal::{Fault, Refusal, quoted};

/// Most items of a page.
const LARGEST: i64 = 100;
/// Items of a page that nobody asked to be larger.
const USUAL: i64 = 20;
/// Most names or addresses that a list can be narrowed by.
pub(crate) const MOST_LISTED: usize = 1000;
/// Most tags that a list can be narrowed by, by one parameter.
pub(crate) const MOST_TAGS: usize = 20;
/// Most values of `include`.
const MOST_INCLUDED: usize = 100;
/// Most parameters of one request.
const MOST_PARAMETERS: usize = 1000;

/// The parameters, decoded, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The same without a parameter.
    pub(super) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(other, _)| other != name).cloned().collect())
    }

    /// Reads a query string.
    ///
    /// # Errors
    /// What is wrong when a percent-encoding is not sound, or there are too many parameters.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut parameters = Vec::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            if parameters.len() == MOST_PARAMETERS {
                return Err(Fault::whole(format!("at most {MOST_PARAMETERS} parameters are taken")));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let pair = decoded(name, true).zip(decoded(value, true));
            parameters.push(pair.ok_or_else(|| Fault::parameter(quoted(name), "is not percent-encoded soundly"))?);
        }
        Ok(Self(parameters))
    }

    /// Whether a parameter was sent, with whatever value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The last value of a parameter, trimmed; `None` when it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.last(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// The last value of a parameter, as it was sent.
    fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// The values of a parameter that is a list, at most `most`: several ones and commas mean the same. Trimmed,
    /// without empty ones.
    ///
    /// # Errors
    /// `Malformed` for more.
    pub fn list(&self, name: &'static str, most: usize) -> Result<Vec<String>, Refusal> {
        let values = self.0.iter().filter(|(known, _)| known == name).flat_map(|(_, value)| value.split(','));
        let values = values.map(str::trim).filter(|value| !value.is_empty());
        few(name, most, values.take(most + 1).map(str::to_owned).collect())
    }

    /// The indexed pairs `filter[tagged][i][key]` and `[value]`, at most [`MOST_TAGS`]; an empty value is `None`. Blanks
    /// at their ends are theirs: tags may have some.
    ///
    /// # Errors
    /// `Malformed` for more.
    pub fn tagged(&self) -> Result<Vec<(String, Option<String>)>, Refusal> {
        const NAME: &str = "filter[tagged]";
        let indexes = self.0.iter().filter_map(|(name, key)| {
            let index = name.strip_prefix(NAME)?.strip_suffix("[key]")?;
            (!key.is_empty()).then(|| (index, key.clone()))
        });
        let indexes = few(NAME, MOST_TAGS, indexes.take(MOST_TAGS + 1).collect())?;
        let value = |index| self.last(&format!("{NAME}{index}[value]")).filter(|value| !value.is_empty());
        let value = |index| value(index).map(str::to_owned);
        Ok(indexes.into_iter().map(|(index, key)| (key, value(index))).collect())
    }

    /// The page that is asked for: by default the first one of 20.
    ///
    /// # Errors
    /// `Malformed` for what is not a whole number from 0 to 2^31-1.
    pub fn page(&self) -> Result<Page, Refusal> {
        let number = |name: &'static str, usual: i64| match self.text(name) {
            None => Ok(usual),
            Some(text) => match text.parse::<i32>() {
                Ok(0) => Ok(usual),
                Ok(number) if number > 0 => Ok(number.into()),
                _ => Err(Refusal::parameter(name, format!("{name} must be a whole number from 0 to {}", i32::MAX))),
            },
        };
        let (number, size) = (number("page[number]", 1)?, number("page[size]", USUAL)?);
        Ok(Page { number, size: size.min(LARGEST) })
    }

    /// The order that is asked for, one of `known`: its name, and whether backwards.
    ///
    /// # Errors
    /// `Malformed` for any other.
    pub fn sort(&self, known: &[&'static str]) -> Result<Option<(&'static str, bool)>, Refusal> {
        let Some(text) = self.text("sort") else { return Ok(None) };
        let (name, backwards) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        match known.iter().find(|one| **one == name) {
            Some(name) => Ok(Some((name, backwards))),
            None => Err(Refusal::parameter(
                "sort",
                format!("sort must be one of {}, or one of them after -", known.join(", ")),
            )),
        }
    }

    /// What is to be included: each of `served` that was named. `-` and `_` are the same in it. Values of
    /// `known` are taken and serve nothing.
    ///
    /// # Errors
    /// `Malformed` for any other value.
    pub fn include(&self, served: &[&'static str], known: &[&str]) -> Result<Vec<&'static str>, Refusal> {
        let mut wanted = Vec::new();
        for value in self.list("include", MOST_INCLUDED)? {
            let value = value.replace('-', "_");
            match served.iter().find(|one| **one == value) {
                Some(one) if wanted.contains(one) => {}
                Some(one) => wanted.push(*one),
                None if known.contains(&value.as_str()) => {}
                None => {
                    let detail =
                        format!("the include parameter \"{}\" is not one of {}", quoted(&value), served.join(", "));
                    return Err(Refusal::parameter("include", detail));
                }
            }
        }
        Ok(wanted)
    }

    /// The parameters that were recognised, for the links of a list.
    pub fn recognised<'q>(&'q self, known: &'q [&str]) -> impl Iterator<Item = (&'q str, &'q str)> {
        let is_known = |name: &str| known.contains(&name) || name.starts_with("filter[tagged][");
        self.0.iter().map(|(name, value)| (&name[..], &value[..])).filter(move |(name, _)| is_known(name))
    }
}

/// The items of a list that a parameter gives, of which there are few enough.
fn few<T>(name: &'static str, most: usize, items: Vec<T>) -> Result<Vec<T>, Refusal> {
    if items.len() <= most {
        return Ok(items);
    }
    Err(Refusal::parameter(name, format!("at most {most} values can be asked for")))
}

/// A text with its percent-encoding undone; `None` when that is not sound, or hides a NUL, which not every
/// store can look for. `+` is a space in queries.
pub(super) fn decoded(text: &str, plus: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(text: &str) -> Query {
        Query::parse(text).ok().unwrap()
    }

    #[test]
    fn lists_join_repeated_parameters_and_others_take_the_last() {
        let query = query("filter%5Bnames%5d=a,%20b,,&filter[names]=c+d&q=x&q=+y+");
        assert_eq!(query.list("filter[names]", 3).ok().unwrap(), ["a", "b", "c d"]);
        assert!(query.list("filter[names]", 2).is_err());
        assert_eq!(query.text("q"), Some("y"));
        assert!(query.has("q") && !query.has("sort") && query.text("filter[x]").is_none());
    }

    #[test]
    fn pages() {
        let page =
            |text| query(text).page().map(|page| (page.number, page.size)).map_err(|r| r.faults[0].source.clone());
        for (text, number, size) in [
            ("", 1, 20),
            ("page[size]=100&page[number]=3", 3, 100),
            ("page%5Bsize%5D=101", 1, 100),
            ("page[size]=00000000000000000005", 1, 5),
            ("page[size]=0&page[number]=0", 1, 20),
            ("page[number]=2147483647", 2_147_483_647, 20),
        ] {
            assert_eq!(page(text), Ok((number, size)), "{text}");
        }
        for text in ["page[size]=abc", "page[size]=-1", "page[size]=2147483648", "page[size]=1.5"] {
            assert_eq!(
                page(text),
                Err(Some(crate::projects::refusal::Source::Parameter("page[size]".into()))),
                "{text}"
            );
        }
    }

    #[test]
    fn tags_come_in_pairs_whose_value_may_be_empty() {
        let tagged = query(
            "filter[tagged][0][key]=a&filter[tagged][0][value]=&filter[tagged][1][key]=+b%20&filter[tagged][1][value]=7+",
        );
        assert_eq!(tagged.tagged().ok().unwrap(), [("a".to_owned(), None), (" b ".to_owned(), Some("7 ".to_owned()))]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,80}") {
            if let Ok(query) = Query::parse(&text) {
                let _ = (query.page(), query.tagged(), query.sort(&["name"]));
            }
        }
    }
}
