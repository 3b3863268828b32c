//! What is sent to the policy engine and what it answers: one JSON object each. This is the domain's own wire to
//! a peer, and the only one that it words.
//!
//! The caller's body goes along as it came, but for `csr`, which is written anew from what was read, so
//! that nothing that stood beside it leaves. The answer is input like any other: its members have one
//! type each, none may be there twice, texts are cut and cleaned before anybody sees them.
//!
//! | in the question | is |
//! |---|---|
//! | `request_version`, `request_uuid`, `synchronous` | 1, a random UUID, true |
//! | `user_request_key_values` | the caller's body; `csr` is always PEM |
//! | `identity_request_key_values` | who asks: `entity_id`; of `entity` and of each of `groups` what the settings select; absent for a token without an entity |
//! | `service_request_values` | policy of the path, mount, mode (`issue`, `sign`, `ica`), issuer of the path or the default one |
//!
//! | in the answer (status 200) | is |
//! |---|---|
//! | `request_uuid` | the question's |
//! | `certificate` | PEM of one certificate, the template; without it the request is refused |
//! | `issuer_ref` | who signs, in the place of the path's; needed with a certificate |
//! | `error` | why it is refused; beside a certificate, a warning |
//! | `warnings` | texts for the caller |
//! | `store_certificate`, `generate_lease` | whether to record it (default false), to make a lease (not supported yet) |

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Mode;
use crate::error::{Error, Kind, Result, Warnings};
use crate::pki::check::validity::Limits;
use crate::pki::mount::profile::certificate_pem;
use crate::pki::mount::settings::external_policy::Config;
use crate::pki::mount::signer::Signer;
use crate::pki::mount::view::View;

/// The version of the question's form.
const VERSION: u8 = 1;
/// Longest text of the engine that is passed on, characters.
const MAX_TEXT: usize = 500;
/// Most warnings of the engine that are passed on.
const MAX_WARNINGS: usize = 20;

/// What a caller sent, which nobody but the engine reads.
#[derive(Clone, Debug, Default)]
pub struct Body(Map<String, Value>);

impl From<Map<String, Value>> for Body {
    fn from(members: Map<String, Value>) -> Self {
        Self(members)
    }
}

/// Who asks, as the identities of this server are shown: never a token.
#[derive(Clone, Debug)]
pub struct Who {
    /// The entity's id.
    pub entity_id: String,
    /// The entity and its aliases.
    pub entity: Value,
    /// Each of its groups.
    pub groups: Vec<Value>,
}

/// What the engine is told of a request beside the caller's words.
pub(super) struct Asked<'a> {
    /// Whoever asks, when the token has an entity.
    pub(super) who: Option<&'a Who>,
    /// The policy of the path, or empty.
    pub(super) policy: &'a str,
    /// Path of the mount, with a trailing `/`.
    pub(super) mount: &'a str,
    /// What is wanted.
    pub(super) mode: &'a Mode,
    /// The mount's lifetimes.
    pub(super) limits: Limits,
}

/// What the engine is asked.
#[derive(Serialize)]
struct Question<'a> {
    request_version: u8,
    request_uuid: &'a str,
    synchronous: bool,
    user_request_key_values: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_request_key_values: Option<Value>,
    service_request_values: ServiceValues<'a>,
}

/// What the server adds to the caller's words.
#[derive(Serialize)]
struct ServiceValues<'a> {
    policy_name: &'a str,
    mount: &'a str,
    namespace: &'static str,
    service_is_performance_standby: bool,
    service_is_performance_secondary: bool,
    issuance_mode: &'static str,
    service_generated_private_key: bool,
    requested_issuer_name: &'a str,
    requested_issuer_id: &'a str,
    requested_issuer_cert: String,
    requested_issuance_config: Value,
}

/// The question as JSON text. `issuer` is the one of the path, or the default; there may be none.
///
/// # Errors
/// `Internal` when it cannot be written.
pub(super) fn question(
    view: &View,
    asked: &Asked<'_>,
    body: Body,
    uuid: &str,
    csr_pem: String,
    issuer: Option<&Signer>,
) -> Result<Vec<u8>> {
    let Body(mut user) = body;
    user.insert("csr".to_owned(), csr_pem.into());
    let record = issuer.map(|signer| &signer.issuer.record);
    let service = ServiceValues {
        policy_name: asked.policy,
        mount: asked.mount,
        namespace: "root",
        service_is_performance_standby: false,
        service_is_performance_secondary: false,
        issuance_mode: asked.mode.word(),
        service_generated_private_key: matches!(asked.mode, Mode::Issue(_)),
        requested_issuer_name: record.map_or("", |r| &r.name),
        requested_issuer_id: record.map_or("", |r| &r.id),
        requested_issuer_cert: issuer.map(|signer| certificate_pem(&signer.issuer)).unwrap_or_default(),
        requested_issuance_config: json!({
            "aia_values": issuer.map(|signer| urls(view, signer)).unwrap_or_default(),
            "leaf_not_after_behavior": record.map_or("", |r| r.leaf_not_after_behavior.as_str()),
            "mount_default_ttl": asked.limits.mount_default.as_secs(),
            "mount_max_ttl": asked.limits.mount_max.as_secs(),
        }),
    };
    let question = Question {
        request_version: VERSION,
        request_uuid: uuid,
        synchronous: true,
        user_request_key_values: user,
        identity_request_key_values: asked.who.map(|who| identity(view, who)),
        service_request_values: service,
    };
    serde_json::to_vec(&question).map_err(Error::internal)
}

/// Who asks: the id, and of everything else what the settings select. A group of which nothing is selected is left out.
fn identity(view: &View, who: &Who) -> Value {
    let Config { entity_jmespath, group_jmespath, .. } = &view.external_policy.value;
    let groups = who.groups.iter().filter_map(|group| selected(group_jmespath, group));
    json!({
        "entity_id": who.entity_id,
        "entity": selected(entity_jmespath, &who.entity),
        "groups": groups.collect::<Vec<_>>(),
    })
}

/// What an expression of the settings selects of a value; nothing without one.
fn selected<'v>(expression: &str, value: &'v Value) -> Option<&'v Value> {
    match expression {
        "" => None,
        "@" => Some(value),
        path => path.split('.').try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null()),
    }
}

/// The URLs that certificates of an issuer get; empty where it can issue none, because they have no value yet.
fn urls(view: &View, signer: &Signer) -> Map<String, Value> {
    let urls = view.urls_of(&signer.issuer).unwrap_or_default();
    urls.lists().into_iter().map(|(name, list)| (name.to_owned(), list.clone().into())).collect()
}

#[derive(Deserialize)]
struct Raw {
    request_uuid: String,
    error: Option<String>,
    warnings: Option<Vec<String>>,
    certificate: Option<String>,
    issuer_ref: Option<String>,
    store_certificate: Option<bool>,
    generate_lease: Option<bool>,
}

/// The engine's consent: what to sign, by whom.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// PEM of the template.
    pub(super) certificate: String,
    /// The issuer that the engine chose.
    pub(super) issuer_ref: String,
    /// Whether to record the certificate.
    pub(super) store: bool,
    /// Whether to make a lease of it.
    pub(super) lease: bool,
}

/// The answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What it decided; a refusal is the text for the caller.
    pub(super) decision: std::result::Result<Consent, String>,
    /// For the caller.
    pub(super) warnings: Warnings,
}

impl Answer {
    /// Reads the answer to the question `uuid`.
    ///
    /// # Errors
    /// `BadGateway` when it is no answer, `Invalid` when it is the answer to another question.
    pub(super) fn read(body: &[u8], uuid: &str) -> Result<Self> {
        let malformed =
            |what: &str| Error::new(Kind::BadGateway, format!("external policy: the engine's answer {what}"));
        let raw: Raw = serde_json::from_slice(body)
            .map_err(|_| malformed("is not a JSON object with request_uuid and members of the right types"))?;
        if raw.request_uuid != uuid {
            return Err(Error::invalid("external policy: the engine answered another request: request_uuid differs"));
        }
        let given = raw.warnings.unwrap_or_default();
        let mut warnings: Warnings =
            given.iter().take(MAX_WARNINGS).map(|w| cleaned(w)).filter(|text| !text.is_empty()).collect();
        let error = raw.error.map(|text| cleaned(&text)).filter(|text| !text.is_empty());
        let Some(certificate) = raw.certificate.filter(|text| !text.trim().is_empty()) else {
            let error = error.unwrap_or_else(|| "the engine gave no certificate and no reason".to_owned());
            return Ok(Self { decision: Err(error), warnings });
        };
        let issuer_ref =
            raw.issuer_ref.filter(|text| !text.is_empty()).ok_or_else(|| malformed("has no issuer_ref"))?;
        warnings.extend(error);
        let (store, lease) = (raw.store_certificate.unwrap_or(false), raw.generate_lease.unwrap_or(false));
        Ok(Self { decision: Ok(Consent { certificate, issuer_ref, store, lease }), warnings })
    }
}

/// A text of the engine for people: no control characters, not too long.
fn cleaned(text: &str) -> String {
    let words = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    words.take(MAX_TEXT).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: Value) -> Result<Answer> {
        Answer::read(body.to_string().as_bytes(), "u")
    }

    #[test]
    fn an_answer_is_consent_or_refusal() {
        let consent = read(json!({
            "request_uuid": "u", "certificate": "c", "issuer_ref": "i", "store_certificate": true, "more": [1],
        }))
        .unwrap();
        let expected = Consent { certificate: "c".into(), issuer_ref: "i".into(), store: true, lease: false };
        assert_eq!(consent, Answer { decision: Ok(expected), warnings: Warnings::default() });
        let refusal =
            read(json!({ "request_uuid": "u", "error": "no", "warnings": ["w"], "certificate": "" })).unwrap();
        assert_eq!(refusal, Answer { decision: Err("no".into()), warnings: vec!["w".into()].into() });
        assert!(read(json!({ "request_uuid": "u" })).unwrap().decision.unwrap_err().contains("no reason"));
        let both =
            json!({ "request_uuid": "u", "error": "e", "certificate": "c", "issuer_ref": "i", "warnings": ["w"] });
        assert_eq!(*read(both).unwrap().warnings, ["w", "e"]);
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_refused() {
        let twice = br#"{"request_uuid":"x","request_uuid":"u","error":"no"}"#;
        assert_eq!(Answer::read(twice, "u").unwrap_err().kind(), Kind::BadGateway);
        let deep = format!("{{\"request_uuid\":\"u\",\"error\":\"no\",\"x\":{}", "[".repeat(100_000));
        assert_eq!(Answer::read(deep.as_bytes(), "u").unwrap_err().kind(), Kind::BadGateway);
        for body in [
            json!([]),
            json!({}),
            json!({ "request_uuid": 1 }),
            json!({ "request_uuid": "u", "error": 1 }),
            json!({ "request_uuid": "u", "warnings": "w" }),
            json!({ "request_uuid": "u", "certificate": "c", "issuer_ref": "i", "store_certificate": "true" }),
            json!({ "request_uuid": "u", "certificate": "c" }),
            json!({ "request_uuid": "u", "certificate": "c", "issuer_ref": "" }),
        ] {
            assert_eq!(read(body.clone()).unwrap_err().kind(), Kind::BadGateway, "{body}");
        }
        let other = read(json!({ "request_uuid": "U", "error": "no" })).unwrap_err();
        assert_eq!((other.kind(), other.text().contains("request_uuid")), (Kind::Invalid, true));
    }

    #[test]
    fn an_expression_selects_the_whole_a_member_or_nothing() {
        let entity = json!({ "name": "bob", "metadata": { "team": "web" }, "aliases": [{}], "none": null });
        for (expression, expected) in [
            ("", None),
            ("@", Some(&entity)),
            ("name", Some(&entity["name"])),
            ("metadata.team", Some(&entity["metadata"]["team"])),
            ("metadata.other", None),
            ("name.length", None),
            ("aliases.name", None),
            ("none", None),
        ] {
            assert_eq!(selected(expression, &entity), expected, "{expression:?}");
        }
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        let warnings: Vec<String> = (0..100).map(|n| format!("{n}")).collect();
        let error = format!("a\u{1b}[31m\r\nb{}", "x".repeat(1000));
        let answer = read(json!({ "request_uuid": "u", "error": error, "warnings": warnings })).unwrap();
        assert_eq!(answer.warnings.len(), MAX_WARNINGS);
        let text = answer.decision.unwrap_err();
        assert!(text.starts_with("a [31m  bxxx") && text.chars().count() == MAX_TEXT, "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Answer::read(&body, "u");
        }
    }
}
