//! The HTTP interface of the certificate authority engine: its route table, with the handlers in submodules.

mod acme;
mod authority;
mod crl;
mod external_policy;
mod generate;
mod import;
mod issuers;
mod issuing;
mod keys;
mod lists;
mod ocsp;
mod record;
mod rendering;
mod request_fields;
mod revoking;
mod roles;
mod tidy;
mod urls;

use std::sync::Arc;

use serde_json::{Map, Value};

use self::issuing::fields as issuing_fields;
use super::handler_response::HandlerResponse;
use super::page::{PAGE_FIELDS, PageParams};
use super::route::{Call, Operation, Route, routes};
use crate::error::Result;
use crate::pki::Authority;
use crate::pki::actor::ReplicaLink;

/// The routes of a PKI mount.
pub static ROUTES: &[Route] = routes! {
    token List "roles" PAGE_FIELDS => roles::list;
    (token.compressible()) Read "roles/:name" &[] => roles::read;
    token Update "roles/:name" roles::FIELDS => roles::write;
    token Patch "roles/:name" roles::FIELDS => roles::write;
    token Delete "roles/:name" &[] => roles::delete;
    (token.with_idempotency_key()) Update "issue/:name", "issuer/:issuer_ref/issue/:name" issuing_fields::ISSUE_FIELDS => issuing::issue;
    (token.with_idempotency_key()) Update "sign/:name", "issuer/:issuer_ref/sign/:name" issuing_fields::SIGN_FIELDS => issuing::sign;
    (token.with_idempotency_key()) Update "root/sign-intermediate", "issuer/:issuer_ref/sign-intermediate"
        issuing_fields::INTERMEDIATE_FIELDS => issuing::sign_intermediate;
    (sudo.with_idempotency_key()) Update "root/sign-self-issued" issuing_fields::SELF_ISSUED_FIELDS => issuing::sign_self_issued;
    (token.with_idempotency_key()) Update
        "issuer/:issuer_ref/sign-self-issued" issuing_fields::SELF_ISSUED_FIELDS => issuing::sign_self_issued;
    (token.with_idempotency_key()) Update "sign-verbatim", "sign-verbatim/:name", "issuer/:issuer_ref/sign-verbatim",
        "issuer/:issuer_ref/sign-verbatim/:name" issuing_fields::VERBATIM_FIELDS => issuing::sign_verbatim;
    token Read "config/external-policy" &[] => external_policy::read_config;
    token Update "config/external-policy" external_policy::FIELDS => external_policy::write_config;
    (token.with_verbatim_body().with_idempotency_key()) Update
        "external-policy/issue", "external-policy/issue/:policy", "issuer/:issuer_ref/external-policy/issue",
        "issuer/:issuer_ref/external-policy/issue/:policy" external_policy::ISSUE_FIELDS => external_policy::issue;
    (token.with_verbatim_body().with_idempotency_key()) Update
        "external-policy/sign", "external-policy/sign/:policy", "issuer/:issuer_ref/external-policy/sign",
        "issuer/:issuer_ref/external-policy/sign/:policy" external_policy::SIGN_FIELDS => external_policy::sign;
    (token.with_verbatim_body().with_idempotency_key()) Update
        "external-policy/sign-intermediate", "external-policy/sign-intermediate/:policy",
        "issuer/:issuer_ref/external-policy/sign-intermediate",
        "issuer/:issuer_ref/external-policy/sign-intermediate/:policy"
        external_policy::SIGN_FIELDS => external_policy::sign_intermediate;
    token Update "revoke" revoking::FIELDS => revoking::revoke;
    token Update "revoke-with-key" revoking::REVOKE_WITH_KEY_FIELDS => revoking::revoke_with_key;
    token Update "tidy" tidy::FIELDS => tidy::start;
    token Read "tidy-status" &[] => tidy::status;
    token Update "tidy-cancel" &[] => tidy::cancel;
    token Read "config/auto-tidy" &[] => tidy::read_config;
    token Update "config/auto-tidy" tidy::AUTO_FIELDS => tidy::write_config;
    token Read "crl/rotate" &[] => crl::rotate;
    token Update "crl/rotate" &[] => crl::rotate;
    token Read "crl/rotate-delta" &[] => crl::rotate_delta;
    token Update "crl/rotate-delta" &[] => crl::rotate_delta;
    (token.without_text_limit()) Update "issuer/:issuer_ref/resign-crls" crl::RESIGN_FIELDS => crl::resign;
    token Update "issuer/:issuer_ref/sign-revocation-list" crl::SIGN_FIELDS => crl::sign_list;
    token Update "root/generate/:type", "issuers/generate/root/:type", "root/rotate/:type"
        generate::ROOT_FIELDS => generate::root;
    token Update "intermediate/generate/:type", "issuers/generate/intermediate/:type"
        generate::INTERMEDIATE_FIELDS => generate::intermediate;
    token Update "intermediate/cross-sign" generate::INTERMEDIATE_FIELDS => generate::cross_sign;
    token Update "intermediate/set-signed" import::SET_SIGNED_FIELDS => import::set_signed;
    token Update "issuers/import/bundle" import::BUNDLE_FIELDS => import::bundle;
    token Update "issuers/import/cert" import::BUNDLE_FIELDS => import::certificates;
    (token.with_raw_body(import::MAX_CRL_BODY_BYTES)) Update "issuers/import/crl" &["crl"] => import::import_crl;
    token Update "config/ca" import::BUNDLE_FIELDS => import::bundle;
    token Update "root/replace" &["default"] => issuers::replace_root;
    sudo Delete "root" &[] => issuers::delete_all;
    open List "issuers" PAGE_FIELDS => issuers::list;
    token Read "issuer/:issuer_ref" &[] => issuers::read;
    token Update "issuer/:issuer_ref" issuers::FIELDS => issuers::write;
    token Patch "issuer/:issuer_ref" issuers::FIELDS => issuers::write;
    token Delete "issuer/:issuer_ref" &[] => issuers::delete;
    token Update "issuer/:issuer_ref/revoke" revoking::REVOKE_ISSUER_FIELDS => issuers::revoke;
    token Read "config/issuers" &[] => issuers::read_config;
    token Update "config/issuers" &["default", "default_follows_latest_issuer"] => issuers::write_config;
    token Read "config/urls" &[] => urls::read;
    token Update "config/urls" urls::FIELDS => urls::write;
    token Read "config/cluster" &[] => urls::read_cluster;
    token Update "config/cluster" urls::CLUSTER_FIELDS => urls::write_cluster;
    token Read "config/crl" &[] => crl::read_config;
    token Update "config/crl" crl::CONFIG_FIELDS => crl::write_config;
    token List "keys" PAGE_FIELDS => keys::list;
    token Update "keys/generate/:type" generate::KEY_FIELDS => generate::key;
    token Update "keys/import" import::KEY_FIELDS => import::key;
    token Read "key/:key_ref" &[] => keys::read;
    token Update "key/:key_ref" &["key_name"] => keys::rename;
    token Delete "key/:key_ref" &[] => keys::delete;
    token Read "config/keys" &[] => keys::read_config;
    token Update "config/keys" &["default"] => keys::write_config;
    (open.on_public_listener()) Read "ca" &[] => authority::issuer_der;
    (open.on_public_listener()) Read "ca/pem" &[] => authority::issuer_pem;
    (open.on_public_listener()) Read "ca_chain" &[] => authority::ca_chain;
    open Read "cert/ca" &[] => authority::ca_json;
    open Read "cert/ca/raw" &[] => authority::issuer_der;
    open Read "cert/ca/raw/pem" &[] => authority::issuer_pem;
    open Read "cert/ca_chain" &[] => authority::ca_chain_json;
    open Read "cert/crl", "cert/delta-crl", "cert/unified-crl", "cert/unified-delta-crl" &[] => crl::read_as_certificate_json;
    (open.on_public_listener()) Read
        "crl", "crl/pem", "crl/delta", "crl/delta/pem", "unified-crl", "unified-crl/pem", "unified-crl/delta",
        "unified-crl/delta/pem" &[] => crl::read_raw;
    open Read "issuer/:issuer_ref/json" &[] => authority::issuer_json;
    (open.on_public_listener()) Read "issuer/:issuer_ref/der" &[] => authority::issuer_der;
    (open.on_public_listener()) Read "issuer/:issuer_ref/pem" &[] => authority::issuer_pem;
    (open.on_public_listener()) Read "issuer/:issuer_ref/crl" &[] => crl::read_as_crl_json;
    (open.on_public_listener()) Read "issuer/:issuer_ref/crl/der", "issuer/:issuer_ref/crl/pem" &[] => crl::read_raw;
    (open.on_public_listener()) Read "issuer/:issuer_ref/crl/delta" &[] => crl::read_as_crl_json;
    (open.on_public_listener()) Read "issuer/:issuer_ref/crl/delta/der", "issuer/:issuer_ref/crl/delta/pem" &[] => crl::read_raw;
    (open.on_public_listener()) Read "issuer/:issuer_ref/unified-crl" &[] => crl::read_as_crl_json;
    (open.on_public_listener()) Read "issuer/:issuer_ref/unified-crl/der", "issuer/:issuer_ref/unified-crl/pem" &[] => crl::read_raw;
    (open.on_public_listener()) Read "issuer/:issuer_ref/unified-crl/delta" &[] => crl::read_as_crl_json;
    (open.on_public_listener()) Read
        "issuer/:issuer_ref/unified-crl/delta/der", "issuer/:issuer_ref/unified-crl/delta/pem" &[] => crl::read_raw;
    open Read "cert/:serial" &[] => authority::certificate;
    open Read "cert/:serial/raw" &[] => authority::certificate_der;
    open Read "cert/:serial/raw/pem" &[] => authority::certificate_pem;
    (open.with_raw_body(ocsp::MAX_BODY_BYTES).on_public_listener()) Update "ocsp" &[] => ocsp::post;
    (open.with_raw_body(ocsp::MAX_ENCODED_REQUEST_BYTES).on_public_listener()) Read "ocsp/**request" &[] => ocsp::get;
    (open.with_raw_body(ocsp::MAX_BODY_BYTES).on_public_listener()) Update "unified-ocsp" &[] => ocsp::post;
    (open.with_raw_body(ocsp::MAX_ENCODED_REQUEST_BYTES).on_public_listener()) Read "unified-ocsp/**request" &[] => ocsp::get;
    token List "certs" PAGE_FIELDS => lists::list_certificates;
    token List "certs/detailed" &["after", "limit", "order"] => lists::list_with_details;
    token List "certs/revoked" PAGE_FIELDS => lists::list_revoked;
    token List "certs/revocation-queue" PAGE_FIELDS => lists::list_revocation_queue;
    token List "certs/unified-revoked" PAGE_FIELDS => lists::list_unified_revoked;
    token Read "config/acme" &[] => acme::read_config;
    open Read "acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "acme/*path" &[] => acme::reject_as_disabled;
    open Read "roles/:role/acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "roles/:role/acme/*path" &[] => acme::reject_as_disabled;
    open Read "issuer/:issuer_ref/acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "issuer/:issuer_ref/acme/*path" &[] => acme::reject_as_disabled;
    open Read "issuer/:issuer_ref/roles/:role/acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "issuer/:issuer_ref/roles/:role/acme/*path" &[] => acme::reject_as_disabled;
    open Read "external-policy/acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "external-policy/acme/*path" &[] => acme::reject_as_disabled;
    open Read "external-policy/:policy/acme/*path" &[] => acme::reject_as_disabled;
    (open.with_raw_body(acme::MAX_BODY_BYTES)) Update "external-policy/:policy/acme/*path" &[] => acme::reject_as_disabled;
    token List "cert-metadata" PAGE_FIELDS => record::list_metadata;
    token Read "cert-metadata/:serial" &[] => record::read_metadata;
    token Read "cert-record/:serial" &[] => record::read;
};

/// Rule for members that are absent in a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// POST: absent members get their defaults.
    Replace,
    /// PATCH: absent members are unchanged, and null sets the default.
    Merge,
}

impl WriteMode {
    fn of(call: &Call) -> Self {
        if call.route.operation == Operation::Patch { Self::Merge } else { Self::Replace }
    }
}

/// Adds `others` to `members`, the members of a resource that need no conversion.
pub(super) fn json_with_members<const N: usize>(mut members: Map<String, Value>, others: [(&str, Value); N]) -> Value {
    members.extend(others.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(members)
}

fn list_names<'a>(call: &Call, names: impl Iterator<Item = &'a str>) -> Result<HandlerResponse> {
    HandlerResponse::keys(PageParams::of(&call.fields)?.take_page(names), None)
}

impl Call {
    async fn authority(&self) -> Result<Arc<Authority>> {
        self.state.mounts.authority(&self.mount).await
    }

    /// Returns the caller's requester record (accessor hash, entity id, display name) for storage; empty on routes that
    /// need no token.
    fn requester_record(&self) -> &str {
        self.caller.as_deref().map_or("", |caller| caller.requester.as_str())
    }

    /// Returns a path parameter; `None` if the route's pattern has none of that name.
    fn optional_param(&self, name: &str) -> Option<&str> {
        Some(self.param(name)).filter(|value| !value.is_empty())
    }

    async fn replica(&self) -> Result<ReplicaLink> {
        self.authority().await?;
        self.state.replica(self.mount.id)
    }
}
