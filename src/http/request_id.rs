//! Request ids, for responses, logs and audit records.

use actix_web::http::header::{HeaderMap, HeaderName};

use crate::random;

/// Header in which a proxy or a client sends its own id of the request.
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request id: a UUID in text form, with or without hyphens, stored inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    text: [u8; 36],
    len: u8,
}

impl RequestId {
    /// Returns a random id.
    pub fn random() -> Self {
        let mut text = [0; 36];
        uuid::Builder::from_random_bytes(random::unique_bytes()).into_uuid().hyphenated().encode_lower(&mut text);
        Self { text, len: 36 }
    }

    /// Returns the id in `X-Request-Id` as the client sent it, if that is exactly one UUID; otherwise a random id.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(&X_REQUEST_ID);
        match (given.next(), given.next()) {
            (Some(only), None) => Self::read(only.as_bytes()).unwrap_or_else(Self::random),
            _ => Self::random(),
        }
    }

    fn read(given: &[u8]) -> Option<Self> {
        let hyphens: &[usize] = match given.len() {
            36 => &[8, 13, 18, 23],
            32 => &[],
            _ => return None,
        };
        let fits = |(at, octet): (usize, &u8)| match hyphens.contains(&at) {
            true => *octet == b'-',
            false => octet.is_ascii_hexdigit(),
        };
        if !given.iter().enumerate().all(fits) {
            return None;
        }
        let mut text = [0; 36];
        text[..given.len()].copy_from_slice(given);
        Some(Self { text, len: given.len() as u8 })
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn request_id_header_is_used_if_it_is_a_single_uuid() {
        let of = |given: &[&str]| {
            let request = given.iter().fold(TestRequest::default(), |r, id| r.append_header(("x-request-id", *id)));
            RequestId::of(request.to_http_request().headers())
        };
        let id = "0f8fad5b-d9cb-469f-A165-70867728950e";
        let short = id.replace('-', "");
        for kept in [id, &short] {
            assert_eq!(of(&[kept]).as_str(), kept);
        }
        let long = format!("{id}0");
        let elsewhere = format!("{}--", short.clone() + "00");
        for new in [&[][..], &[id, id], &[""], &["x"], &[&long], &[&id[1..]], &[&elsewhere], &["{0f8fad5b}\u{e9}"]] {
            let given = of(new);
            assert!(!new.contains(&given.as_str()) && RequestId::read(given.as_str().as_bytes()) == Some(given));
        }
        assert_ne!(of(&[]), of(&[]));
    }
}
