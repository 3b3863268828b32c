//! Two dialects: which types the members of an answer have.
//!
//! The contract words some members otherwise than the servers whose clients are used here unmodified, and
//! those clients fail on the contract's types. Who sends `X-Vault-Token` or `X-Vault-Request`, on open routes
//! too, gets the peers' types; everyone else, and whoever sends `X-Service-Token` beside them, the
//! contract's. `Authorization: Bearer` is the contract's, and without `compat` everything is.
//!
//! All that differs:
//!
//! | member | contract | peers | who fails on the other |
//! |---|---|---|---|
//! | `expiration` of `issue`, `sign`, `sign-verbatim`, `sign-intermediate`, generated roots and their `external-policy` forms | text of epoch seconds | integer | consul-template and the agents crash; the Terraform provider makes a new certificate at every apply |
//! | `renew_after` of every certificate that is made (the contract does not know it) | text of epoch seconds | integer | read like `expiration` |
//! | `not_before` of `issue`, `sign`, `sign-verbatim` and their `external-policy` forms (the contract does not show it) | text of epoch seconds | integer | read like `expiration` |
//! | `ttl`, `max_ttl` of a role, read or written | duration text (`6h`) | integer seconds | the Terraform provider changes the role at every apply |
//! | `type` of an authentication method that was enabled as `azure` | `cloudb` | `azure` | the Terraform provider replaces the method at every apply |
//! | `mechanism`, `force_rw_session`, unset `slot` and `key_bits`, the usage `random` of a managed key that is read | number, boolean, 0, `random` | hexadecimal text, text where it is true, absent, `generate_random` | the Terraform provider cannot read the key, or writes it at every apply |
//!
//! Requests differ in two values. A `ttl` above the limit of its role or mount is refused in the contract's dialect and
//! capped with a warning in the peers': cert-manager asks for 2160h whatever the role says. A `max_parallel` of 0 stands
//! for absent in the peers' dialect, because the Terraform provider sends it so.
//!
//! What one might expect here too has one type for everyone. Integers: `lease_duration`, `revocation_time`,
//! the other durations of roles and tidy (`not_before_duration`, `safety_buffer`), times of mounts and
//! tokens. Texts, as they were written: the durations of `config/crl` and `pause_duration`. RFC 3339:
//! `expiration` of `cert-metadata` and of policies, `expire_time` of tokens. A list: `warnings`. Requests are
//! read leniently, and otherwise the same from everyone.

use std::io::Write as _;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use serde_json::Value;

use super::request::{SERVICE_TOKEN, VAULT_TOKEN};
use crate::auth::mounts::Mount;
use crate::clock::compact;
use crate::fields::Fields;
use crate::pki::check::request::ExcessiveTtl;
use crate::secret::PartlySecret;

static VAULT_REQUEST: HeaderName = HeaderName::from_static("x-vault-request");

/// The dates in an answer, epoch seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// notBefore, where the answer shows it.
    pub not_before: Option<i64>,
    /// notAfter.
    pub expiration: i64,
    /// When to ask for the next certificate.
    pub renew_after: i64,
}

/// The types that the sender of a request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The contract's.
    Contract,
    /// Those of the servers that known clients were written for.
    Peers,
}

impl Dialect {
    /// The dialect of a request, by its headers.
    pub fn of(headers: &HeaderMap, compat: bool) -> Self {
        let known = || headers.contains_key(&VAULT_TOKEN) || headers.contains_key(&VAULT_REQUEST);
        let own = || headers.get_all(&SERVICE_TOKEN).any(|token| !token.is_empty());
        if compat && known() && !own() { Self::Peers } else { Self::Contract }
    }

    /// A date in epoch seconds.
    pub fn date(self, at: i64) -> Value {
        match self {
            Self::Contract => at.to_string().into(),
            Self::Peers => at.into(),
        }
    }

    /// Adds the dates to the JSON text of an object that has members.
    pub fn with_dates(self, mut json: PartlySecret, dates: Dates) -> PartlySecret {
        json.pop();
        let quote = if self == Self::Contract { "\"" } else { "" };
        let Dates { not_before, expiration, renew_after } = dates;
        // Writing to memory cannot fail.
        let _ = write!(json, ",\"expiration\":{quote}{expiration}{quote},\"renew_after\":{quote}{renew_after}{quote}");
        if let Some(not_before) = not_before {
            let _ = write!(json, ",\"not_before\":{quote}{not_before}{quote}");
        }
        json.push(b"}");
        json
    }

    /// What happens to the `ttl` of a certificate above the limit of its role or mount.
    pub fn excessive_ttl(self) -> ExcessiveTtl {
        match self {
            Self::Contract => ExcessiveTtl::Refused,
            Self::Peers => ExcessiveTtl::Capped,
        }
    }

    /// The type of a mount.
    pub fn mount_type(self, mount: &Mount) -> &str {
        match self {
            Self::Peers if !mount.known_as.is_empty() => &mount.known_as,
            _ => mount.kind.word(),
        }
    }

    /// A managed key that is read.
    pub fn managed_key(self, mut shown: Value) -> Value {
        if self == Self::Contract {
            return shown;
        }
        let is_unset = |shown: &Value, name: &str| shown[name] == 0;
        if is_unset(&shown, "key_bits") {
            drop_member(&mut shown, "key_bits");
        }
        // A token is found by one of the two, and slot 0 is one.
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

    /// Drops members of a managed key that is written where the sender's word for an absent one has another meaning.
    pub fn without_unset(self, fields: &mut Fields) {
        if self == Self::Peers && fields.int("max_parallel").is_ok_and(|count| count == Some(0)) {
            fields.set("max_parallel", Value::Null);
        }
    }

    /// A lifetime of a role, given in seconds.
    pub fn lifetime(self, seconds: u64) -> Value {
        match self {
            Self::Contract => compact(Duration::from_secs(seconds)).into(),
            Self::Peers => seconds.into(),
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
    fn the_header_decides_and_the_contracts_own_wins() {
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
            assert_eq!(of(true, headers), Dialect::Peers, "{headers:?}");
            assert_eq!(of(false, headers), Dialect::Contract, "{headers:?}");
        }
    }

    #[test]
    fn dates_join_an_object_as_texts_or_as_integers() {
        let dates = |not_before| Dates { not_before, expiration: 1_654_105_687, renew_after: 9 };
        let read = |dialect: Dialect, not_before| -> Value {
            serde_json::from_slice(dialect.with_dates("{\"a\":1}".to_owned().into(), dates(not_before)).expose())
                .unwrap()
        };
        let texts = json!({ "a": 1, "expiration": "1654105687", "not_before": "-5", "renew_after": "9" });
        assert_eq!(read(Dialect::Contract, Some(-5)), texts);
        assert_eq!(read(Dialect::Contract, None), json!({ "a": 1, "expiration": "1654105687", "renew_after": "9" }));
        let integers = json!({ "a": 1, "expiration": 1_654_105_687, "not_before": 7, "renew_after": 9 });
        assert_eq!(read(Dialect::Peers, Some(7)), integers);
        assert_eq!((Dialect::Contract.date(7), Dialect::Peers.date(7)), (json!("7"), json!(7)));
    }

    #[test]
    fn lifetimes_are_texts_or_seconds() {
        assert_eq!((Dialect::Contract.lifetime(21_600), Dialect::Peers.lifetime(21_600)), (json!("6h"), json!(21_600)));
    }
}
