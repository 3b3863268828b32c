//! The JSON member types of this server's API contract, and those of compatible servers. This server also supports
//! unmodified clients of those servers.
//!
//! A request with `X-Vault-Token` or `X-Vault-Request` gets the compatible types, also on routes without a token. All
//! other requests get the contract's types, as do requests with `X-Service-Token` and all requests while the setting
//! `compat` is off. Only the members handled in this file differ, each because a known client fails on the contract's
//! type. In requests, two values differ: see [`Dialect::excessive_ttl`] and [`Dialect::remove_unset_max_parallel`].

use std::io::Write as _;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use serde_json::Value;

use super::request::{SERVICE_TOKEN, VAULT_TOKEN};
use crate::auth::mounts::Mount;
use crate::clock::format_duration;
use crate::fields::Fields;
use crate::pki::check::request::ExcessiveTtl;
use crate::secret::PartlySecret;

static VAULT_REQUEST: HeaderName = HeaderName::from_static("x-vault-request");

/// The certificate dates in a response, in epoch seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateDates {
    /// The notBefore date, if the response contains it.
    pub not_before: Option<i64>,
    /// The notAfter date of the certificate.
    pub expiration: i64,
    /// The time at which to request the next certificate.
    pub renew_after: i64,
}

/// The member types that the client of a request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The types of this server's API contract.
    Contract,
    /// The types of the compatible servers that known clients were written for.
    Compat,
}

impl Dialect {
    /// Returns the dialect of a request, by its headers. `compat` is the setting that enables the compatible dialect.
    pub fn of(headers: &HeaderMap, compat: bool) -> Self {
        let known = || headers.contains_key(&VAULT_TOKEN) || headers.contains_key(&VAULT_REQUEST);
        let own = || headers.get_all(&SERVICE_TOKEN).any(|token| !token.is_empty());
        if compat && known() && !own() { Self::Compat } else { Self::Contract }
    }

    /// Renders a date in epoch seconds: as a string, or as an integer in the compatible dialect.
    pub fn render_date(self, at: i64) -> Value {
        match self {
            Self::Contract => at.to_string().into(),
            Self::Compat => at.into(),
        }
    }

    /// Adds the dates of a certificate to the JSON text of a non-empty object.
    pub fn with_dates(self, mut json: PartlySecret, dates: CertificateDates) -> PartlySecret {
        json.pop();
        let quote = if self == Self::Contract { "\"" } else { "" };
        let CertificateDates { not_before, expiration, renew_after } = dates;
        // Writing to memory cannot fail.
        let _ = write!(json, ",\"expiration\":{quote}{expiration}{quote},\"renew_after\":{quote}{renew_after}{quote}");
        if let Some(not_before) = not_before {
            let _ = write!(json, ",\"not_before\":{quote}{not_before}{quote}");
        }
        json.push(b"}");
        json
    }

    /// Returns the rule for a requested `ttl` above the limit of its role or mount. The compatible dialect caps it,
    /// because cert-manager always requests 2160h.
    pub fn excessive_ttl(self) -> ExcessiveTtl {
        match self {
            Self::Contract => ExcessiveTtl::Refused,
            Self::Compat => ExcessiveTtl::Capped,
        }
    }

    /// Returns the type of a mount. In the compatible dialect it is the type name that the client sent when it enabled
    /// the mount.
    pub fn mount_type(self, mount: &Mount) -> &str {
        match self {
            Self::Compat if !mount.known_as.is_empty() => &mount.known_as,
            _ => mount.kind.name(),
        }
    }

    /// Converts the response members of a managed key. With the contract's types, the Terraform provider would fail or
    /// detect a change.
    pub fn convert_managed_key(self, mut shown: Value) -> Value {
        if self == Self::Contract {
            return shown;
        }
        let is_unset = |shown: &Value, name: &str| shown[name] == 0;
        if is_unset(&shown, "key_bits") {
            drop_member(&mut shown, "key_bits");
        }
        // A PKCS #11 token is selected by its label or its slot. Slot 0 is valid, so it cannot mean that no slot is
        // set.
        if shown["token_label"].as_str().is_some_and(|label| !label.is_empty()) {
            drop_member(&mut shown, "slot");
        }
        if let Some(number) = shown["mechanism"].as_u64() {
            shown["mechanism"] = format!("{number:#06x}").into();
        }
        match shown["force_rw_session"].as_bool() {
            Some(true) => shown["force_rw_session"] = "true".into(),
            Some(false) => drop_member(&mut shown, "force_rw_session"),
            None => {}
        }
        for usage in shown["usages"].as_array_mut().into_iter().flatten().filter(|usage| **usage == "random") {
            *usage = "generate_random".into();
        }
        shown
    }

    /// Unsets `max_parallel` in a managed key request if it is 0, because the Terraform provider sends 0 for an unset
    /// value.
    pub fn remove_unset_max_parallel(self, fields: &mut Fields) {
        if self == Self::Compat && fields.int("max_parallel").is_ok_and(|count| count == Some(0)) {
            fields.set("max_parallel", Value::Null);
        }
    }

    /// Renders a lifetime in a role: as duration text, or in seconds for the compatible dialect.
    pub fn render_lifetime(self, seconds: u64) -> Value {
        match self {
            Self::Contract => format_duration(Duration::from_secs(seconds)).into(),
            Self::Compat => seconds.into(),
        }
    }
}

fn drop_member(object: &mut Value, name: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use serde_json::json;

    #[test]
    fn contract_header_overrides_client_header() {
        let of = |compat, headers: &[(&'static str, &'static str)]| {
            let request = headers.iter().fold(TestRequest::default(), |request, header| request.append_header(*header));
            Dialect::of(request.to_http_request().headers(), compat)
        };
        for headers in [
            &[][..],
            &[("x-service-token", "t")],
            &[("authorization", "Bearer t")],
            &[("x-service-token", "t"), ("x-vault-token", "t")],
            &[("x-service-token", "t"), ("x-vault-request", "true")],
        ] {
            assert_eq!(of(true, headers), Dialect::Contract, "{headers:?}");
        }
        for headers in [
            &[("x-vault-token", "t")][..],
            &[("x-vault-request", "true")],
            &[("x-vault-request", "true"), ("authorization", "Bearer t")],
            &[("x-vault-token", "t"), ("x-service-token", "")],
        ] {
            assert_eq!(of(true, headers), Dialect::Compat, "{headers:?}");
            assert_eq!(of(false, headers), Dialect::Contract, "{headers:?}");
        }
    }

    #[test]
    fn certificate_dates_are_texts_or_integers_by_dialect() {
        let dates = |not_before| CertificateDates { not_before, expiration: 1_654_105_687, renew_after: 9 };
        let read = |dialect: Dialect, not_before| -> Value {
            serde_json::from_slice(dialect.with_dates("{\"a\":1}".to_owned().into(), dates(not_before)).expose())
                .unwrap()
        };
        let texts = json!({ "a": 1, "expiration": "1654105687", "not_before": "-5", "renew_after": "9" });
        assert_eq!(read(Dialect::Contract, Some(-5)), texts);
        assert_eq!(read(Dialect::Contract, None), json!({ "a": 1, "expiration": "1654105687", "renew_after": "9" }));
        let integers = json!({ "a": 1, "expiration": 1_654_105_687, "not_before": 7, "renew_after": 9 });
        assert_eq!(read(Dialect::Compat, Some(7)), integers);
        assert_eq!((Dialect::Contract.render_date(7), Dialect::Compat.render_date(7)), (json!("7"), json!(7)));
    }

    #[test]
    fn lifetime_is_text_or_seconds_by_dialect() {
        assert_eq!(
            (Dialect::Contract.render_lifetime(21_600), Dialect::Compat.render_lifetime(21_600)),
            (json!("6h"), json!(21_600))
        );
    }
}
