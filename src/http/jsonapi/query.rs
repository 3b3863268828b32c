//! Query parameters: pages, sorting, filters, lists of values.
//!
//! Unknown parameters are ignored, because known clients send some. `[` and `]` may be percent-encoded in requests;
//! pagination links encode them.

use crate::projects::page::PageRequest;
use crate::projects::rejection::{ApiRejection, Fault, truncate_for_message};
use crate::projects::tag::TagFilter;

/// Maximum number of resources on a page.
const MAX_PAGE_SIZE: i64 = 100;
/// Default number of resources on a page.
const DEFAULT_PAGE_SIZE: i64 = 20;
/// Maximum number of names or addresses in a filter.
pub(crate) const MAX_FILTER_VALUES: usize = 1000;
/// Maximum number of tags in a filter.
pub(crate) const MAX_FILTER_TAGS: usize = 20;
/// Prefix of the parameters that filter by tags, such as `filter[tagged][0][key]`.
pub(crate) const TAG_FILTER: &str = "filter[tagged]";
/// Maximum number of `include` values.
const MAX_INCLUDE_VALUES: usize = 100;
/// Maximum number of query parameters in a request.
const MAX_QUERY_PARAMETERS: usize = 1000;

/// The decoded query parameters, in the order in which the client sent them.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(other, _)| other != name).cloned().collect())
    }

    /// Parses a query string.
    ///
    /// # Errors
    /// A fault for an invalid percent-encoding or too many parameters.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut parameters = Vec::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            if parameters.len() == MAX_QUERY_PARAMETERS {
                return Err(Fault::without_source(format!(
                    "query: at most {MAX_QUERY_PARAMETERS} parameters are allowed"
                )));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let pair = percent_decode(name, true).zip(percent_decode(value, true));
            parameters.push(pair.ok_or_else(|| {
                let name = truncate_for_message(name);
                Fault::parameter(name.clone(), format!("{name}: must be percent-encoded UTF-8 text without NUL"))
            })?);
        }
        Ok(Self(parameters))
    }

    /// `true` if the client sent a parameter, even with an empty value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Returns the last value of a parameter, trimmed; `None` when it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.last(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// Returns the values of a list parameter, trimmed and without empty ones. Repeated parameters and commas are
    /// equivalent.
    ///
    /// # Errors
    /// `Malformed` for more than `max` values.
    pub fn list(&self, name: &'static str, max: usize) -> Result<Vec<String>, ApiRejection> {
        let values = self.0.iter().filter(|(known, _)| known == name).flat_map(|(_, value)| value.split(','));
        let values = values.map(str::trim).filter(|value| !value.is_empty());
        check_count(name, max, values.take(max + 1).map(str::to_owned).collect())
    }

    /// Returns the indexed pairs `filter[tagged][i][key]` and `[value]`, at most [`MAX_FILTER_TAGS`]. An empty key or
    /// value matches any. Surrounding spaces are significant, because tags may begin or end with spaces.
    ///
    /// # Errors
    /// `Malformed` for too many pairs, members other than `key` and `value`, repeated members, and pairs with neither
    /// key nor value: ignoring a filter would widen the list.
    pub fn tag_filters(&self) -> Result<Vec<TagFilter>, ApiRejection> {
        let mut pairs: Vec<(&str, [Option<&str>; 2])> = Vec::new();
        for (name, value) in &self.0 {
            let Some(rest) = name.strip_prefix(TAG_FILTER) else { continue };
            let refused = |rule: &str| {
                ApiRejection::parameter(truncate_for_message(name), format!("{}: {rule}", truncate_for_message(name)))
            };
            let Some((index, at)) = split_tag_filter(rest) else {
                return Err(refused(
                    "must have the form filter[tagged][<number>][key] or filter[tagged][<number>][value]",
                ));
            };
            let pair = pairs.iter().position(|(known, _)| *known == index).unwrap_or_else(|| {
                pairs.push((index, [None; 2]));
                pairs.len() - 1
            });
            if pairs.len() > MAX_FILTER_TAGS {
                return Err(ApiRejection::parameter(
                    TAG_FILTER,
                    format!("{TAG_FILTER}: at most {MAX_FILTER_TAGS} values are allowed"),
                ));
            }
            if pairs[pair].1[at].replace(value).is_some() {
                return Err(refused("must not be sent twice"));
            }
        }
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let filters = pairs.into_iter().map(|(index, [key, value])| match (text(key), text(value)) {
            (None, None) => {
                let name = format!("{TAG_FILTER}{index}[key]");
                Err(ApiRejection::parameter(name, format!("{TAG_FILTER}{index}: a key or a value is required")))
            }
            (key, value) => Ok(TagFilter { key, value }),
        });
        filters.collect()
    }

    /// Rejects filters and searches that a list does not support, because ignoring them would widen the list. Other
    /// unknown parameters are ignored.
    ///
    /// # Errors
    /// `Malformed` for the first filter that is not in `known`.
    pub fn refuse_unknown_filters(&self, known: &[&str]) -> Result<(), ApiRejection> {
        let narrows = |name: &str| ["filter[", "search[", "q["].iter().any(|family| name.starts_with(family));
        match self.0.iter().find(|(name, _)| narrows(name) && !is_known(known, name)) {
            None => Ok(()),
            Some((name, _)) => {
                let name = truncate_for_message(name);
                Err(ApiRejection::parameter(name.clone(), format!("{name} is not a filter of this list")))
            }
        }
    }

    /// Returns the requested page, by default the first page with 20 items.
    ///
    /// # Errors
    /// `Malformed` if a parameter is not a whole number from 0 to 2^31-1.
    pub fn page(&self) -> Result<PageRequest, ApiRejection> {
        let number = |name: &'static str, usual: i64| match self.text(name) {
            None => Ok(usual),
            Some(text) => match text.parse::<i32>() {
                Ok(0) => Ok(usual),
                Ok(number) if number > 0 => Ok(number.into()),
                _ => {
                    Err(ApiRejection::parameter(name, format!("{name} must be a whole number from 0 to {}", i32::MAX)))
                }
            },
        };
        let (number, size) = (number("page[number]", 1)?, number("page[size]", DEFAULT_PAGE_SIZE)?);
        Ok(PageRequest { number, size: size.min(MAX_PAGE_SIZE) })
    }

    /// `true` if the client requested a page.
    pub fn requests_page(&self) -> bool {
        self.has("page[number]") || self.has("page[size]")
    }

    /// Returns the requested sort field, one of `known`, and `true` for descending order.
    ///
    /// # Errors
    /// `Malformed` for a field that is not in `known`.
    pub fn sort(&self, known: &[&'static str]) -> Result<Option<(&'static str, bool)>, ApiRejection> {
        let Some(text) = self.text("sort") else { return Ok(None) };
        let (name, backwards) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        match known.iter().find(|one| **one == name) {
            Some(name) => Ok(Some((name, backwards))),
            None => Err(ApiRejection::parameter(
                "sort",
                format!("sort must be one of {}, optionally with a leading -", known.join(", ")),
            )),
        }
    }

    /// Returns the values of `include` that are in `served`; `-` and `_` are equivalent. Values in `known` are accepted
    /// and ignored.
    ///
    /// # Errors
    /// `Malformed` for any other value.
    pub fn include(&self, served: &[&'static str], known: &[&str]) -> Result<Vec<&'static str>, ApiRejection> {
        let mut wanted = Vec::new();
        for value in self.list("include", MAX_INCLUDE_VALUES)? {
            let value = value.replace('-', "_");
            match served.iter().find(|one| **one == value) {
                Some(one) if wanted.contains(one) => {}
                Some(one) => wanted.push(*one),
                None if known.contains(&value.as_str()) => {}
                None => {
                    let detail = format!(
                        "the include parameter \"{}\" is not one of {}",
                        truncate_for_message(&value),
                        served.join(", ")
                    );
                    return Err(ApiRejection::parameter("include", detail));
                }
            }
        }
        Ok(wanted)
    }

    /// Returns the parameters whose names are in `known`, for the pagination links of a list.
    pub fn supported_parameters<'q>(&'q self, known: &'q [&str]) -> impl Iterator<Item = (&'q str, &'q str)> {
        self.0.iter().map(|(name, value)| (&name[..], &value[..])).filter(move |(name, _)| is_known(known, name))
    }
}

/// `true` if `known` contains the parameter `name`; [`TAG_FILTER`] covers all parameters with that prefix.
fn is_known(known: &[&str], name: &str) -> bool {
    known.contains(&name) || (known.contains(&TAG_FILTER) && name.starts_with(TAG_FILTER))
}

/// Splits `[0][key]`, the rest of a tag filter's name: returns the index, and 0 for `[key]` or 1 for `[value]`.
fn split_tag_filter(rest: &str) -> Option<(&str, usize)> {
    let mut members = [("[key]", 0), ("[value]", 1)].into_iter();
    let (index, at) = members.find_map(|(member, at)| Some((rest.strip_suffix(member)?, at)))?;
    let number = index.strip_prefix('[')?.strip_suffix(']')?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some((index, at))
}

fn check_count<T>(name: &'static str, max: usize, items: Vec<T>) -> Result<Vec<T>, ApiRejection> {
    if items.len() <= max {
        return Ok(items);
    }
    Err(ApiRejection::parameter(name, format!("{name}: at most {max} values are allowed")))
}

/// Decodes percent-encoded text; `None` if it is invalid or contains a NUL, which some stores cannot search for. If
/// `plus` is set, `+` is decoded as a space.
pub(super) fn percent_decode(text: &str, plus: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let high = digit(rest.next())?;
                let low = digit(rest.next())?;
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
    fn query_lists_join_repetitions_and_texts_use_the_last() {
        let query = query("filter%5Bnames%5d=a,%20b,,&filter[names]=c+d&q=x&q=+y+");
        assert_eq!(query.list("filter[names]", 3).ok().unwrap(), ["a", "b", "c d"]);
        assert!(query.list("filter[names]", 2).is_err());
        assert_eq!(query.text("q"), Some("y"));
        assert!(query.has("q") && !query.has("sort") && query.text("filter[x]").is_none());
    }

    #[test]
    fn page_size_is_capped_and_invalid_pages_are_refused() {
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
                Err(Some(crate::projects::rejection::FaultSource::Parameter("page[size]".into()))),
                "{text}"
            );
        }
    }

    #[test]
    fn tag_filters_are_pairs_whose_value_may_be_empty() {
        let tagged = query(
            "filter[tagged][0][key]=a&filter[tagged][0][value]=&filter[tagged][1][key]=+b%20&filter[tagged][1][value]=7+",
        );
        let pair = |key: Option<&str>, value: Option<&str>| TagFilter {
            key: key.map(str::to_owned),
            value: value.map(str::to_owned),
        };
        assert_eq!(tagged.tag_filters().ok().unwrap(), [pair(Some("a"), None), pair(Some(" b "), Some("7 "))]);
        let apart = query("filter[tagged][0][key]=a&filter[tagged][1][value]=7&filter[tagged][][value]=8");
        assert_eq!(
            apart.tag_filters().ok().unwrap(),
            [pair(Some("a"), None), pair(None, Some("7")), pair(None, Some("8"))]
        );
        for refused in [
            "filter[tagged][0][val]=a",
            "filter[tagged][0]=a",
            "filter[tagged]=a",
            "filter[tagged][x][key]=a",
            "filter[tagged]0[key]=a",
            "filter[tagged][0][key]=",
            "filter[tagged][0][key]=&filter[tagged][0][value]=",
            "filter[tagged][0][key]=a&filter[tagged][0][key]=b",
        ] {
            assert!(query(refused).tag_filters().is_err(), "{refused}");
        }
    }

    #[test]
    fn unknown_filters_are_refused_and_other_parameters_ignored() {
        let known = ["filter[names]", TAG_FILTER];
        for taken in ["TagBindings={ env dev}", "filter[names]=a", "filter[tagged][0][key]=a", "x[y]=1", "q=a"] {
            assert!(query(taken).refuse_unknown_filters(&known).is_ok(), "{taken}");
        }
        for refused in ["filter[name]=a", "filter[names][]=a", "search[name]=a", "q[name]=a"] {
            assert!(query(refused).refuse_unknown_filters(&known).is_err(), "{refused}");
        }
        assert!(query("filter[tagged][0][key]=a").refuse_unknown_filters(&[]).is_err());
    }

    proptest! {
        #[test]
        fn query_of_any_text_does_not_panic(text in "\\PC{0,80}") {
            if let Ok(query) = Query::parse(&text) {
                let _ = (query.page(), query.tag_filters(), query.sort(&["name"]));
            }
        }
    }
}
