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
mod metadata;
mod ocsp;
mod record;
mod rendering;
mod request_fields;
mod revoking;
mod roles;
mod tidy;
mod urls;

use std::sync::Arc;

use self::generate::fields as generated;
use self::issuing::fields as asking;
use super::handler_response::HandlerResponse;
use super::page::PageParams;
use super::route::{Call, Operation, Route};
use crate::error::Result;
use crate::pki::Authority;
use crate::pki::actor::ReplicaLink;

macro_rules! route {
    ($access:ident $operation:ident $pattern:literal $fields:expr => $handler:path) => {
        Route::$access(Operation::$operation, $pattern, $fields, |call| Box::pin($handler(call)))
    };
}

const LIST_FIELDS: &[&str] = &["after", "limit"];

/// The routes of a PKI mount.
pub static ROUTES: &[Route] = &[
    route!(token List "roles" LIST_FIELDS => roles::list),
    route!(token Read "roles/:name" &[] => roles::read).compressible(),
    route!(token Update "roles/:name" roles::FIELDS => roles::replace),
    route!(token Patch "roles/:name" roles::FIELDS => roles::merge),
    route!(token Delete "roles/:name" &[] => roles::delete),
    route!(token Update "issue/:name" asking::ISSUE_FIELDS => issuing::issue).repeatable(),
    route!(token Update "issuer/:issuer_ref/issue/:name" asking::ISSUE_FIELDS => issuing::issue).repeatable(),
    route!(token Update "sign/:name" asking::SIGN_FIELDS => issuing::sign).repeatable(),
    route!(token Update "issuer/:issuer_ref/sign/:name" asking::SIGN_FIELDS => issuing::sign).repeatable(),
    route!(token Update "root/sign-intermediate" asking::INTERMEDIATE_FIELDS => issuing::sign_intermediate).repeatable(),
    route!(token Update "issuer/:issuer_ref/sign-intermediate" asking::INTERMEDIATE_FIELDS => issuing::sign_intermediate).repeatable(),
    route!(sudo Update "root/sign-self-issued" asking::SELF_ISSUED_FIELDS => issuing::sign_self_issued).repeatable(),
    route!(token Update "issuer/:issuer_ref/sign-self-issued" asking::SELF_ISSUED_FIELDS => issuing::sign_self_issued).repeatable(),
    route!(token Update "sign-verbatim" asking::VERBATIM_FIELDS => issuing::sign_verbatim).repeatable(),
    route!(token Update "sign-verbatim/:name" asking::VERBATIM_FIELDS => issuing::sign_verbatim).repeatable(),
    route!(token Update "issuer/:issuer_ref/sign-verbatim" asking::VERBATIM_FIELDS => issuing::sign_verbatim).repeatable(),
    route!(token Update "issuer/:issuer_ref/sign-verbatim/:name" asking::VERBATIM_FIELDS => issuing::sign_verbatim).repeatable(),
    route!(token Read "config/external-policy" &[] => external_policy::read_config),
    route!(token Update "config/external-policy" external_policy::FIELDS => external_policy::write_config),
    route!(token Update "external-policy/issue" external_policy::ISSUE_FIELDS => external_policy::issue)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "external-policy/issue/:policy" external_policy::ISSUE_FIELDS => external_policy::issue)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/issue" external_policy::ISSUE_FIELDS => external_policy::issue)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/issue/:policy" external_policy::ISSUE_FIELDS => external_policy::issue)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "external-policy/sign" external_policy::SIGN_FIELDS => external_policy::sign)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "external-policy/sign/:policy" external_policy::SIGN_FIELDS => external_policy::sign)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/sign" external_policy::SIGN_FIELDS => external_policy::sign)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/sign/:policy" external_policy::SIGN_FIELDS => external_policy::sign)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "external-policy/sign-intermediate" external_policy::SIGN_FIELDS => external_policy::sign_intermediate)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "external-policy/sign-intermediate/:policy" external_policy::SIGN_FIELDS => external_policy::sign_intermediate)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/sign-intermediate" external_policy::SIGN_FIELDS => external_policy::sign_intermediate)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "issuer/:issuer_ref/external-policy/sign-intermediate/:policy" external_policy::SIGN_FIELDS => external_policy::sign_intermediate)
        .with_verbatim_body()
        .repeatable(),
    route!(token Update "revoke" revoking::FIELDS => revoking::revoke),
    route!(token Update "revoke-with-key" revoking::BY_KEY_FIELDS => revoking::revoke_with_key),
    route!(token Update "tidy" tidy::FIELDS => tidy::begin),
    route!(token Read "tidy-status" &[] => tidy::status),
    route!(token Update "tidy-cancel" &[] => tidy::cancel),
    route!(token Read "config/auto-tidy" &[] => tidy::read_config),
    route!(token Update "config/auto-tidy" tidy::AUTO_FIELDS => tidy::write_config),
    route!(token Read "crl/rotate" &[] => crl::rotate),
    route!(token Update "crl/rotate" &[] => crl::rotate),
    route!(token Read "crl/rotate-delta" &[] => crl::rotate_delta),
    route!(token Update "crl/rotate-delta" &[] => crl::rotate_delta),
    route!(token Update "issuer/:issuer_ref/resign-crls" crl::RESIGN_FIELDS => crl::resign).with_long_texts(),
    route!(token Update "issuer/:issuer_ref/sign-revocation-list" crl::SIGN_FIELDS => crl::sign_list),
    route!(token Update "root/generate/:type" generated::ROOT_FIELDS => generate::root),
    route!(token Update "issuers/generate/root/:type" generated::ROOT_FIELDS => generate::root),
    route!(token Update "root/rotate/:type" generated::ROOT_FIELDS => generate::rotated_root),
    route!(token Update "intermediate/generate/:type" generated::INTERMEDIATE_FIELDS => generate::intermediate),
    route!(token Update "issuers/generate/intermediate/:type" generated::INTERMEDIATE_FIELDS => generate::intermediate),
    route!(token Update "intermediate/cross-sign" generated::INTERMEDIATE_FIELDS => generate::cross_sign),
    route!(token Update "intermediate/set-signed" import::SIGNED_FIELDS => import::set_signed),
    route!(token Update "issuers/import/bundle" import::BUNDLE_FIELDS => import::bundle),
    route!(token Update "issuers/import/cert" import::BUNDLE_FIELDS => import::certificates),
    route!(token Update "issuers/import/crl" &["crl"] => import::import_crl).with_raw_body(import::MAX_CRL_BODY_BYTES),
    route!(token Update "config/ca" import::BUNDLE_FIELDS => import::bundle),
    route!(token Update "root/replace" &["default"] => issuers::replace_root),
    route!(sudo Delete "root" &[] => issuers::delete_all),
    route!(open List "issuers" LIST_FIELDS => issuers::list),
    route!(token Read "issuer/:issuer_ref" &[] => issuers::read),
    route!(token Update "issuer/:issuer_ref" issuers::FIELDS => issuers::replace),
    route!(token Patch "issuer/:issuer_ref" issuers::FIELDS => issuers::merge),
    route!(token Delete "issuer/:issuer_ref" &[] => issuers::delete),
    route!(token Update "issuer/:issuer_ref/revoke" revoking::ISSUER_FIELDS => issuers::revoke),
    route!(token Read "config/issuers" &[] => issuers::read_config),
    route!(token Update "config/issuers" &["default", "default_follows_latest_issuer"] => issuers::write_config),
    route!(token Read "config/urls" &[] => urls::read),
    route!(token Update "config/urls" urls::FIELDS => urls::write),
    route!(token Read "config/cluster" &[] => urls::read_cluster),
    route!(token Update "config/cluster" urls::CLUSTER_FIELDS => urls::write_cluster),
    route!(token Read "config/crl" &[] => crl::read_config),
    route!(token Update "config/crl" crl::CONFIG_FIELDS => crl::write_config),
    route!(token List "keys" LIST_FIELDS => keys::list),
    route!(token Update "keys/generate/:type" generated::KEY_FIELDS => generate::key),
    route!(token Update "keys/import" import::KEY_FIELDS => import::key),
    route!(token Read "key/:key_ref" &[] => keys::read),
    route!(token Update "key/:key_ref" &["key_name"] => keys::rename),
    route!(token Delete "key/:key_ref" &[] => keys::delete),
    route!(token Read "config/keys" &[] => keys::read_config),
    route!(token Update "config/keys" &["default"] => keys::write_config),
    route!(open Read "ca" &[] => authority::ca_der).public(),
    route!(open Read "ca/pem" &[] => authority::ca_pem).public(),
    route!(open Read "ca_chain" &[] => authority::ca_chain).public(),
    route!(open Read "cert/ca" &[] => authority::ca_json),
    route!(open Read "cert/ca/raw" &[] => authority::ca_der),
    route!(open Read "cert/ca/raw/pem" &[] => authority::ca_pem),
    route!(open Read "cert/ca_chain" &[] => authority::ca_chain_json),
    route!(open Read "cert/crl" &[] => crl::as_certificate),
    route!(open Read "cert/delta-crl" &[] => crl::as_certificate),
    route!(open Read "cert/unified-crl" &[] => crl::as_certificate),
    route!(open Read "cert/unified-delta-crl" &[] => crl::as_certificate),
    route!(open Read "crl" &[] => crl::raw).public(),
    route!(open Read "crl/pem" &[] => crl::raw).public(),
    route!(open Read "crl/delta" &[] => crl::raw).public(),
    route!(open Read "crl/delta/pem" &[] => crl::raw).public(),
    route!(open Read "unified-crl" &[] => crl::raw).public(),
    route!(open Read "unified-crl/pem" &[] => crl::raw).public(),
    route!(open Read "unified-crl/delta" &[] => crl::raw).public(),
    route!(open Read "unified-crl/delta/pem" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/json" &[] => authority::issuer_json),
    route!(open Read "issuer/:issuer_ref/der" &[] => authority::issuer_der).public(),
    route!(open Read "issuer/:issuer_ref/pem" &[] => authority::issuer_pem).public(),
    route!(open Read "issuer/:issuer_ref/crl" &[] => crl::as_crl).public(),
    route!(open Read "issuer/:issuer_ref/crl/der" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/crl/pem" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/crl/delta" &[] => crl::as_crl).public(),
    route!(open Read "issuer/:issuer_ref/crl/delta/der" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/crl/delta/pem" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl" &[] => crl::as_crl).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl/der" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl/pem" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl/delta" &[] => crl::as_crl).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl/delta/der" &[] => crl::raw).public(),
    route!(open Read "issuer/:issuer_ref/unified-crl/delta/pem" &[] => crl::raw).public(),
    route!(open Read "cert/:serial" &[] => authority::certificate),
    route!(open Read "cert/:serial/raw" &[] => authority::certificate_der),
    route!(open Read "cert/:serial/raw/pem" &[] => authority::certificate_pem),
    route!(open Update "ocsp" &[] => ocsp::post).with_raw_body(ocsp::MAX_BODY_BYTES).public(),
    route!(open Read "ocsp/**request" &[] => ocsp::get).with_raw_body(ocsp::MAX_ENCODED_REQUEST_BYTES).public(),
    route!(open Update "unified-ocsp" &[] => ocsp::post).with_raw_body(ocsp::MAX_BODY_BYTES).public(),
    route!(open Read "unified-ocsp/**request" &[] => ocsp::get).with_raw_body(ocsp::MAX_ENCODED_REQUEST_BYTES).public(),
    route!(token List "certs" LIST_FIELDS => lists::certificates),
    route!(token List "certs/detailed" &["after", "limit", "order"] => lists::detailed),
    route!(token List "certs/revoked" LIST_FIELDS => lists::revoked),
    route!(token List "certs/revocation-queue" LIST_FIELDS => lists::revocation_queue),
    route!(token List "certs/unified-revoked" LIST_FIELDS => lists::unified_revoked),
    route!(token Read "config/acme" &[] => acme::config),
    route!(open Read "acme/*path" &[] => acme::disabled),
    route!(open Update "acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(open Read "roles/:role/acme/*path" &[] => acme::disabled),
    route!(open Update "roles/:role/acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(open Read "issuer/:issuer_ref/acme/*path" &[] => acme::disabled),
    route!(open Update "issuer/:issuer_ref/acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(open Read "issuer/:issuer_ref/roles/:role/acme/*path" &[] => acme::disabled),
    route!(open Update "issuer/:issuer_ref/roles/:role/acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(open Read "external-policy/acme/*path" &[] => acme::disabled),
    route!(open Update "external-policy/acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(open Read "external-policy/:policy/acme/*path" &[] => acme::disabled),
    route!(open Update "external-policy/:policy/acme/*path" &[] => acme::disabled).with_raw_body(acme::MAX_BODY_BYTES),
    route!(token List "cert-metadata" LIST_FIELDS => metadata::list),
    route!(token Read "cert-metadata/:serial" &[] => metadata::read),
    route!(token Read "cert-record/:serial" &[] => record::read),
];

/// Rule for absent members of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// POST: absent members get their defaults.
    Replace,
    /// PATCH: absent members are unchanged, null sets the default.
    Merge,
}

fn list_names<'a>(call: &Call, names: impl Iterator<Item = &'a str>) -> Result<HandlerResponse> {
    HandlerResponse::keys(PageParams::of(&call.fields)?.take_page(names), None)
}

impl Call {
    async fn authority(&self) -> Result<Arc<Authority>> {
        self.state.mounts.authority(&self.mount).await
    }

    /// Returns the caller's name in records; empty on open routes.
    fn recorded_as(&self) -> &str {
        self.caller.as_deref().map_or("", |caller| caller.requester.as_str())
    }

    async fn replica(&self) -> Result<ReplicaLink> {
        self.authority().await?;
        self.state.replica(self.mount.id)
    }
}
