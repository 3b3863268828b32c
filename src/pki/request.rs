//! What a client asks for when it has a certificate issued or signed: the body members, read once.
//!
//! Only the form of each member is checked here; names are held against the role in
//! [`names`](super::names), dates in [`validity`](super::validity), `cert_metadata` in
//! [`beside`](super::beside).

use std::time::Duration;

use super::role::whole_seconds;
use crate::error::{Error, Result};
use crate::fields::Fields;

/// Members that `issue` reads.
pub const ISSUE_FIELDS: &[&str] = &[
    "common_name",
    "alt_names",
    "ip_sans",
    "uri_sans",
    "other_sans",
    "serial_number",
    "ttl",
    "not_after",
    "not_before",
    "format",
    "private_key_format",
    "exclude_cn_from_sans",
    "remove_roots_from_chain",
    "user_ids",
    "key_type",
    "key_bits",
    "cert_metadata",
];

/// Members that `sign` reads.
pub const SIGN_FIELDS: &[&str] = &[
    "csr",
    "common_name",
    "alt_names",
    "ip_sans",
    "uri_sans",
    "other_sans",
    "serial_number",
    "ttl",
    "not_after",
    "not_before",
    "format",
    "exclude_cn_from_sans",
    "remove_roots_from_chain",
    "user_ids",
    "cert_metadata",
];

/// Form of the certificates in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// PEM texts.
    #[default]
    Pem,
    /// Standard base64 of DER.
    Der,
    /// PEM, with key and chain in the `certificate` member.
    PemBundle,
}

/// Form of a private key in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateKeyFormat {
    /// PKCS#1, SEC1, or PKCS#8 where the algorithm has no older form.
    #[default]
    Traditional,
    /// PKCS#8.
    Pkcs8,
}

/// A request for a certificate, decoded. Texts are trimmed; empty ones stand for absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IssueRequest {
    /// Common name of the subject.
    pub common_name: String,
    /// Host names and e-mail addresses.
    pub alt_names: Vec<String>,
    /// IP addresses.
    pub ip_sans: Vec<String>,
    /// URIs.
    pub uri_sans: Vec<String>,
    /// otherNames: `<oid>;UTF8:<value>`.
    pub other_sans: Vec<String>,
    /// serialNumber attribute of the subject.
    pub serial_number: String,
    /// Lifetime in whole seconds, above zero.
    pub ttl: Option<Duration>,
    /// End of validity, RFC 3339.
    pub not_after: Option<String>,
    /// Start of validity, RFC 3339.
    pub not_before: Option<String>,
    /// Form of the certificates in the answer.
    pub format: Format,
    /// Form of the private key in the answer.
    pub private_key_format: PrivateKeyFormat,
    /// Keeps the common name out of the SANs.
    pub exclude_cn_from_sans: bool,
    /// Keeps self-signed certificates out of `ca_chain`.
    pub remove_roots_from_chain: bool,
    /// UID attributes of the subject.
    pub user_ids: Vec<String>,
    /// Key type, when the body names one.
    pub key_type: Option<String>,
    /// Key size, when the body names one.
    pub key_bits: Option<i64>,
}

impl IssueRequest {
    /// Reads the members of `issue`, `sign` and the CA endpoints; those that an endpoint does not have
    /// are simply absent.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub fn from_fields(fields: &Fields) -> Result<Self> {
        let text = |name: &str| fields.text(name).map(|t| t.map(|t| t.trim().to_owned()).unwrap_or_default());
        let given = |name: &str| text(name).map(|t| (!t.is_empty()).then_some(t));
        let list = |name: &str| fields.list(name).map(Option::unwrap_or_default);
        let flag = |name: &str| fields.bool(name).map(Option::unwrap_or_default);
        let rendering = Self::rendering(fields)?;
        let ttl = match fields.duration("ttl")? {
            Some(ttl) => whole_seconds("ttl", ttl)?,
            None => 0,
        };
        Ok(Self {
            common_name: text("common_name")?,
            alt_names: list("alt_names")?,
            ip_sans: list("ip_sans")?,
            uri_sans: list("uri_sans")?,
            other_sans: list("other_sans")?,
            serial_number: text("serial_number")?,
            ttl: (ttl > 0).then(|| Duration::from_secs(ttl)),
            not_after: given("not_after")?,
            not_before: given("not_before")?,
            exclude_cn_from_sans: flag("exclude_cn_from_sans")?,
            user_ids: list("user_ids")?,
            key_type: fields.text("key_type")?,
            key_bits: fields.int("key_bits")?,
            ..rendering
        })
    }

    /// Reads the members that say how to render the answer, and nothing else.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub fn rendering(fields: &Fields) -> Result<Self> {
        Ok(Self {
            format: format(fields.text("format")?.as_deref())?,
            private_key_format: private_key_format(fields.text("private_key_format")?.as_deref())?,
            remove_roots_from_chain: fields.bool("remove_roots_from_chain")?.unwrap_or_default(),
            ..Self::default()
        })
    }
}

fn format(word: Option<&str>) -> Result<Format> {
    match word {
        None | Some("pem") => Ok(Format::Pem),
        Some("der") => Ok(Format::Der),
        Some("pem_bundle") => Ok(Format::PemBundle),
        Some(_) => Err(Error::invalid("format: must be pem, der or pem_bundle")),
    }
}

fn private_key_format(word: Option<&str>) -> Result<PrivateKeyFormat> {
    match word {
        None | Some("" | "der" | "pem") => Ok(PrivateKeyFormat::Traditional),
        Some("pkcs8") => Ok(PrivateKeyFormat::Pkcs8),
        Some(_) => Err(Error::invalid("private_key_format: must be der, pem or pkcs8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(body: Value) -> Result<IssueRequest> {
        IssueRequest::from_fields(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn an_empty_body_gives_the_defaults() {
        assert_eq!(read(json!({})).unwrap(), IssueRequest::default());
        let empty = json!({"ttl": "", "not_after": "", "alt_names": "", "ip_sans": "", "format": null});
        assert_eq!(read(empty).unwrap(), IssueRequest::default());
    }

    #[test]
    fn format_is_case_sensitive_and_empty_text_is_an_error() {
        for (word, format) in [("pem", Format::Pem), ("der", Format::Der), ("pem_bundle", Format::PemBundle)] {
            assert_eq!(read(json!({"format": word})).unwrap().format, format);
        }
        for word in ["", "PEM", "pkcs12", " pem"] {
            assert!(read(json!({"format": word})).unwrap_err().text().starts_with("format: "), "{word}");
        }
    }

    #[test]
    fn private_key_format_is_der_pem_or_pkcs8() {
        for word in ["", "der", "pem"] {
            let format = read(json!({"private_key_format": word})).unwrap().private_key_format;
            assert_eq!(format, PrivateKeyFormat::Traditional);
        }
        assert_eq!(read(json!({"private_key_format": "pkcs8"})).unwrap().private_key_format, PrivateKeyFormat::Pkcs8);
        assert!(read(json!({"private_key_format": "PKCS8"})).is_err());
    }

    #[test]
    fn texts_lists_flags_and_numbers_are_read_leniently() {
        let request = read(json!({
            "common_name": " a.foo ", "alt_names": ["b.foo", "c.foo "], "ip_sans": "1.2.3.4, ::1,",
            "other_sans": "1.2.3;UTF8:a,1.2.3;UTF8:b", "exclude_cn_from_sans": "true", "ttl": "1h30m",
            "key_bits": "2048", "user_ids": "x,y",
        }))
        .unwrap();
        assert_eq!(request.common_name, "a.foo");
        assert_eq!(request.alt_names, ["b.foo", "c.foo"]);
        assert_eq!(request.ip_sans, ["1.2.3.4", "::1"]);
        assert_eq!(request.other_sans.len(), 2);
        assert!(request.exclude_cn_from_sans);
        assert_eq!(request.ttl, Some(Duration::from_secs(5400)));
        assert_eq!(request.key_bits, Some(2048));
        assert_eq!(request.user_ids, ["x", "y"]);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        assert!(read(json!({"ttl": "500ms"})).unwrap_err().text().starts_with("ttl"));
        assert!(read(json!({"ttl": -1})).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,30}", pick in 0..ISSUE_FIELDS.len()) {
            let mut fields = Fields::default();
            fields.set(ISSUE_FIELDS[pick], text);
            let _ = IssueRequest::from_fields(&fields);
        }
    }
}
