//! The JSON messages to and from the policy engine.
//!
//! The caller's body is forwarded unchanged, except for `csr`, which is encoded again from the parsed CSR, so that
//! nothing else in that field is forwarded. The response is untrusted: fields have fixed types and must not repeat, and
//! texts are truncated and stripped of control characters.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::PolicyOperation;
use crate::error::{Error, Kind, Result, Warnings};
use crate::pki::check::validity::MountLifetimes;
use crate::pki::mount::profile::certificate_pem;
use crate::pki::mount::settings::external_policy::ExternalPolicyConfig;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::values::Keyword as _;

/// Version of the JSON message format.
const MESSAGE_VERSION: u8 = 1;
/// Maximum length of an engine's text that is forwarded to the caller, characters.
const MAX_ENGINE_TEXT_CHARS: usize = 500;
/// Maximum number of an engine's warnings that are forwarded to the caller.
const MAX_ENGINE_WARNINGS: usize = 20;

/// The caller's request body, interpreted only by the engine.
#[derive(Clone, Debug, Default)]
pub struct PolicyRequestBody(Map<String, Value>);

impl From<Map<String, Value>> for PolicyRequestBody {
    fn from(members: Map<String, Value>) -> Self {
        Self(members)
    }
}

/// Identity of the caller, as JSON for the engine; never contains a token.
#[derive(Clone, Debug)]
pub struct PolicyCallerIdentity {
    /// Id of the caller's entity.
    pub entity_id: String,
    /// The caller's entity and its aliases.
    pub entity: Value,
    /// All groups of the caller's entity.
    pub groups: Vec<Value>,
}

/// Values that the message to the engine contains in addition to the caller's body.
pub(super) struct PolicyRequestContext<'a> {
    /// Identity of the caller, if the token has an entity.
    pub(super) caller: Option<&'a PolicyCallerIdentity>,
    /// Name of the policy in the request path, or empty.
    pub(super) policy: &'a str,
    /// Path of the mount, with a trailing `/`.
    pub(super) mount: &'a str,
    /// The requested operation.
    pub(super) operation: &'a PolicyOperation,
    /// Default and maximum lifetime of the mount's certificates.
    pub(super) limits: MountLifetimes,
}

#[derive(Serialize)]
struct PolicyRequest<'a> {
    request_version: u8,
    request_uuid: &'a str,
    synchronous: bool,
    user_request_key_values: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_request_key_values: Option<Value>,
    service_request_values: PolicyServiceValues<'a>,
}

/// Values that the server adds to the caller's body.
#[derive(Serialize)]
struct PolicyServiceValues<'a> {
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

/// Encodes the message to the engine. `issuer` is the issuer named in the path, else the default issuer, if the mount
/// has one.
///
/// # Errors
/// `Internal` when the message cannot be encoded.
pub(super) fn encode_policy_request(
    view: &MountView,
    context: &PolicyRequestContext<'_>,
    body: PolicyRequestBody,
    uuid: &str,
    csr_pem: String,
    issuer: Option<&IssuerSigner>,
) -> Result<Vec<u8>> {
    let PolicyRequestBody(mut user) = body;
    user.insert("csr".to_owned(), csr_pem.into());
    let record = issuer.map(|signer| &signer.issuer.record);
    let service = PolicyServiceValues {
        policy_name: context.policy,
        mount: context.mount,
        namespace: "root",
        service_is_performance_standby: false,
        service_is_performance_secondary: false,
        issuance_mode: context.operation.name(),
        service_generated_private_key: matches!(context.operation, PolicyOperation::Issue(_)),
        requested_issuer_name: record.map_or("", |r| &r.name),
        requested_issuer_id: record.map_or("", |r| &r.id),
        requested_issuer_cert: issuer.map(|signer| certificate_pem(&signer.issuer)).unwrap_or_default(),
        requested_issuance_config: json!({
            "aia_values": issuer.map(|signer| render_urls(view, signer)).unwrap_or_default(),
            "leaf_not_after_behavior": record.map_or("", |r| r.leaf_not_after_behavior.as_str()),
            "mount_default_ttl": context.limits.mount_default.as_secs(),
            "mount_max_ttl": context.limits.mount_max.as_secs(),
        }),
    };
    let message = PolicyRequest {
        request_version: MESSAGE_VERSION,
        request_uuid: uuid,
        synchronous: true,
        user_request_key_values: user,
        identity_request_key_values: context.caller.map(|caller| render_identity(view, caller)),
        service_request_values: service,
    };
    serde_json::to_vec(&message).map_err(Error::internal)
}

/// Renders the caller's entity id, and the data of the entity and its groups that the JMESPath settings select. Groups
/// without selected data are omitted.
fn render_identity(view: &MountView, caller: &PolicyCallerIdentity) -> Value {
    let ExternalPolicyConfig { entity_jmespath, group_jmespath, .. } = &view.external_policy.value;
    let groups = caller.groups.iter().filter_map(|group| evaluate_jmespath(group_jmespath, group));
    json!({
        "entity_id": caller.entity_id,
        "entity": evaluate_jmespath(entity_jmespath, &caller.entity),
        "groups": groups.collect::<Vec<_>>(),
    })
}

/// Evaluates a JMESPath expression of the settings; `None` if the expression is empty or has no match.
fn evaluate_jmespath<'v>(expression: &str, value: &'v Value) -> Option<&'v Value> {
    match expression {
        "" => None,
        "@" => Some(value),
        path => path.split('.').try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null()),
    }
}

/// Renders the URLs in the issuer's certificates; empty if a placeholder has no value.
fn render_urls(view: &MountView, signer: &IssuerSigner) -> Map<String, Value> {
    let urls = view.urls_of(&signer.issuer).unwrap_or_default();
    urls.lists().map(|(name, list)| (name.to_owned(), list.clone().into())).collect()
}

#[derive(Deserialize)]
struct RawPolicyResponse {
    request_uuid: String,
    error: Option<String>,
    warnings: Option<Vec<String>>,
    certificate: Option<String>,
    issuer_ref: Option<String>,
    store_certificate: Option<bool>,
    generate_lease: Option<bool>,
}

/// Approval of a request by the policy engine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PolicyResponse {
    /// The certificate template, PEM.
    pub(super) certificate: String,
    /// Reference to the issuer that the engine chose.
    pub(super) issuer_ref: String,
    /// `true` if the certificate must be stored.
    pub(super) store: bool,
    /// `true` if the certificate must get a lease.
    pub(super) lease: bool,
}

/// The engine's response to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PolicyEngineReply {
    /// The engine's decision: an approval, or the reason for a rejection, which the caller receives.
    pub(super) decision: std::result::Result<PolicyResponse, String>,
    /// Warnings from the engine for the caller.
    pub(super) warnings: Warnings,
}

impl PolicyEngineReply {
    /// Parses the engine's response to the request with the id `uuid`.
    ///
    /// # Errors
    /// `BadGateway` when the response is malformed, `Invalid` when it contains another `request_uuid`.
    pub(super) fn read(body: &[u8], uuid: &str) -> Result<Self> {
        let malformed =
            |what: &str| Error::new(Kind::BadGateway, format!("external policy: the engine's answer {what}"));
        let raw: RawPolicyResponse = serde_json::from_slice(body)
            .map_err(|_| malformed("is not a JSON object with request_uuid and members of the right types"))?;
        if raw.request_uuid != uuid {
            return Err(Error::invalid("external policy: the engine answered another request: request_uuid differs"));
        }
        let engine_warnings = raw.warnings.unwrap_or_default();
        let mut warnings: Warnings = engine_warnings
            .iter()
            .take(MAX_ENGINE_WARNINGS)
            .map(|w| sanitize(w))
            .filter(|text| !text.is_empty())
            .collect();
        let error = raw.error.map(|text| sanitize(&text)).filter(|text| !text.is_empty());
        let Some(certificate) = raw.certificate.filter(|text| !text.trim().is_empty()) else {
            let error = error.unwrap_or_else(|| "the engine returned neither a certificate nor a reason".to_owned());
            return Ok(Self { decision: Err(error), warnings });
        };
        let issuer_ref =
            raw.issuer_ref.filter(|text| !text.is_empty()).ok_or_else(|| malformed("has no issuer_ref"))?;
        warnings.extend(error);
        let store = raw.store_certificate.unwrap_or(false);
        let lease = raw.generate_lease.unwrap_or(false);
        Ok(Self { decision: Ok(PolicyResponse { certificate, issuer_ref, store, lease }), warnings })
    }
}

/// Truncates a text from the engine and replaces its control characters.
fn sanitize(text: &str) -> String {
    let words = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    words.take(MAX_ENGINE_TEXT_CHARS).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_reply(body: Value) -> Result<PolicyEngineReply> {
        PolicyEngineReply::read(body.to_string().as_bytes(), "u")
    }

    #[test]
    fn engine_reply_is_approval_or_refusal() {
        let consent = parse_reply(json!({
            "request_uuid": "u", "certificate": "c", "issuer_ref": "i", "store_certificate": true, "more": [1],
        }))
        .unwrap();
        let expected = PolicyResponse { certificate: "c".into(), issuer_ref: "i".into(), store: true, lease: false };
        assert_eq!(consent, PolicyEngineReply { decision: Ok(expected), warnings: Warnings::default() });
        let refusal =
            parse_reply(json!({ "request_uuid": "u", "error": "no", "warnings": ["w"], "certificate": "" })).unwrap();
        assert_eq!(refusal, PolicyEngineReply { decision: Err("no".into()), warnings: vec!["w".into()].into() });
        assert!(parse_reply(json!({ "request_uuid": "u" })).unwrap().decision.unwrap_err().contains("nor a reason"));
        let both =
            json!({ "request_uuid": "u", "error": "e", "certificate": "c", "issuer_ref": "i", "warnings": ["w"] });
        assert_eq!(*parse_reply(both).unwrap().warnings, ["w", "e"]);
    }

    #[test]
    fn invalid_policy_engine_reply_is_refused() {
        let twice = br#"{"request_uuid":"x","request_uuid":"u","error":"no"}"#;
        assert_eq!(PolicyEngineReply::read(twice, "u").unwrap_err().kind(), Kind::BadGateway);
        let deep = format!("{{\"request_uuid\":\"u\",\"error\":\"no\",\"x\":{}", "[".repeat(100_000));
        assert_eq!(PolicyEngineReply::read(deep.as_bytes(), "u").unwrap_err().kind(), Kind::BadGateway);
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
            assert_eq!(parse_reply(body.clone()).unwrap_err().kind(), Kind::BadGateway, "{body}");
        }
        let uuid_mismatch = parse_reply(json!({ "request_uuid": "U", "error": "no" })).unwrap_err();
        assert_eq!((uuid_mismatch.kind(), uuid_mismatch.text().contains("request_uuid")), (Kind::Invalid, true));
    }

    #[test]
    fn jmespath_selects_whole_value_member_or_nothing() {
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
            assert_eq!(evaluate_jmespath(expression, &entity), expected, "{expression:?}");
        }
    }

    #[test]
    fn engine_texts_are_truncated_and_sanitized() {
        let warnings: Vec<String> = (0..100).map(|n| format!("{n}")).collect();
        let error = format!("a\u{1b}[31m\r\nb{}", "x".repeat(1000));
        let answer = parse_reply(json!({ "request_uuid": "u", "error": error, "warnings": warnings })).unwrap();
        assert_eq!(answer.warnings.len(), MAX_ENGINE_WARNINGS);
        let text = answer.decision.unwrap_err();
        assert!(text.starts_with("a [31m  bxxx") && text.chars().count() == MAX_ENGINE_TEXT_CHARS, "{text}");
    }

    proptest! {
        #[test]
        fn engine_reply_of_any_bytes_does_not_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PolicyEngineReply::read(&body, "u");
        }
    }
}
