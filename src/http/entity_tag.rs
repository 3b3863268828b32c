//! Entity tags in conditional requests (RFC 9110, 8.8.3, 13.1.1 and 13.1.2).
//!
//! A compressed response has a different entity tag than the uncompressed one ([`encoding`]), but both identify the
//! same state of the resource.

use actix_web::http::header::{HeaderMap, HeaderName};

use super::encoding;

/// The entity tags in an `If-Match` or `If-None-Match` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`, which matches every existing resource.
    Any,
    /// The listed tags as the client sent them. An invalid tag matches nothing.
    List(Vec<String>),
}

impl EntityTags {
    /// Parses the header `name`, which may be split into several lines; `None` if the request does not have it.
    pub fn of(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let lines: Vec<_> = headers.get_all(name).map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let tags: Vec<String> =
            lines.iter().flat_map(|line| line.split(',')).map(|tag| tag.trim().to_owned()).collect();
        match &tags[..] {
            [] => None,
            [all] if all == "*" => Some(Self::Any),
            _ => Some(Self::List(tags)),
        }
    }

    /// `true` if the list contains `tag` (with its quotes) by the strong comparison: weak tags never match.
    pub fn contains(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::List(tags) => tags.iter().any(|one| encoding::uncompressed_tag(one) == tag),
        }
    }

    /// Returns the listed tag that matches `tag` by the weak comparison: the tag of the compressed or uncompressed
    /// response that the client has cached.
    pub fn matching_tag<'t>(&'t self, tag: &'t str) -> Option<&'t str> {
        match self {
            Self::Any => Some(tag),
            Self::List(tags) => {
                let mut opaque = tags.iter().map(|one| one.strip_prefix("W/").unwrap_or(one));
                opaque.find(|one| encoding::uncompressed_tag(one) == tag)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderValue, IF_MATCH};

    use super::*;

    fn parse_tags(lines: &[&[u8]]) -> Option<EntityTags> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_MATCH, HeaderValue::from_bytes(line).unwrap());
        }
        EntityTags::of(&headers, IF_MATCH)
    }

    #[test]
    fn entity_tags_are_read_from_all_lines_and_compare_strongly() {
        assert_eq!(parse_tags(&[]), None);
        type Case<'a> = (&'a [&'a [u8]], bool, Option<&'a str>);
        let cases: [Case<'_>; 12] = [
            (&[b"*"], true, Some("\"ab\"")),
            (&[b"\"ab\""], true, Some("\"ab\"")),
            (&[b"\"x\" , \"ab\""], true, Some("\"ab\"")),
            (&[b"\"x\"", b"\"ab\""], true, Some("\"ab\"")),
            (&[b"\"ab-gzip\""], true, Some("\"ab-gzip\"")),
            (&[b"W/\"ab\""], false, Some("\"ab\"")),
            (&[b"W/\"ab-gzip\""], false, Some("\"ab-gzip\"")),
            (&[b"ab"], false, None),
            (&[b"w/\"ab\""], false, None),
            (&[b"\"x\"", b"*"], false, None),
            (&[b"\"\xff\", \"a\""], false, None),
            (&[b""], false, None),
        ];
        for (lines, strongly, weakly) in cases {
            let tags = parse_tags(lines).unwrap();
            assert_eq!((tags.contains("\"ab\""), tags.matching_tag("\"ab\"")), (strongly, weakly), "{lines:?}");
        }
    }
}
