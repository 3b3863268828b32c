//! Tests with documents stored by an earlier version: they must load and be stored again byte for byte.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cluster::{Cluster, ClusterUrl};
use super::role::{
    CertificatePolicies, NotAfterBound, NotBeforeBound, PolicyInformation, Role, RoleKeys, SerialNumberSource,
    SignatureBits,
};
use super::settings::crl::{CrlConfig, UnknownSerialStatus};
use super::settings::external_policy;
use super::settings::tidy::{AutoTidyConfig, TidyConfig, TidyTask};
use super::urls::Urls;
use super::view::IssuersConfig;
use crate::clock::DurationText;
use crate::pki::values::original_text::Rfc3339Text;

const DEFAULT_ROLE_JSON: &str = concat!(
    r#"{"issuer_ref":"default","ttl":0,"max_ttl":0,"allow_localhost":true,"allowed_domains":[],"#,
    r#""allowed_domains_template":false,"allow_globs_in_identity_templates":false,"allow_bare_domains":false,"#,
    r#""allow_subdomains":false,"allow_glob_domains":false,"allow_wildcard_certificates":true,"#,
    r#""allow_any_name":false,"enforce_hostnames":true,"allow_ip_sans":true,"allowed_ip_sans_cidr":[],"#,
    r#""allowed_uri_sans":[],"allowed_uri_sans_template":false,"allowed_other_sans":[],"allowed_serial_numbers":[],"#,
    r#""allowed_user_ids":[],"allow_token_displayname":false,"server_flag":true,"client_flag":true,"#,
    r#""code_signing_flag":false,"email_protection_flag":false,"key_type":"rsa","key_bits":2048,"#,
    r#""signature_bits":256,"use_pss":false,"key_usage":["DigitalSignature","KeyAgreement","KeyEncipherment"],"#,
    r#""key_usage_is_named":false,"ext_key_usage":[],"ext_key_usage_oids":[],"use_csr_common_name":true,"#,
    r#""use_csr_sans":true,"ou":[],"organization":[],"country":[],"locality":[],"province":[],"street_address":[],"#,
    r#""postal_code":[],"strict_subject":false,"require_cn":true,"cn_validations":["email","hostname"],"#,
    r#""policy_identifiers":[],"basic_constraints_valid_for_non_ca":false,"not_before_duration":30,"not_before":"","#,
    r#""not_before_bound":"permit","not_after":"","not_after_bound":"permit","generate_lease":false,"#,
    r#""no_store":false,"no_store_metadata":false,"serial_number_source":"json-csr"}"#,
);
const CUSTOM_ROLE_JSON: &str = concat!(
    r#"{"issuer_ref":"root","ttl":5400,"max_ttl":21600,"allow_localhost":true,"allowed_domains":["a.test","#,
    r#""b.test"],"allowed_domains_template":false,"allow_globs_in_identity_templates":false,"#,
    r#""allow_bare_domains":false,"allow_subdomains":true,"allow_glob_domains":false,"#,
    r#""allow_wildcard_certificates":true,"allow_any_name":false,"enforce_hostnames":true,"allow_ip_sans":true,"#,
    r#""allowed_ip_sans_cidr":["10.0.0.0/8"],"allowed_uri_sans":[],"allowed_uri_sans_template":false,"#,
    r#""allowed_other_sans":["1.2.3;UTF8:*"],"allowed_serial_numbers":[],"allowed_user_ids":[],"#,
    r#""allow_token_displayname":false,"server_flag":true,"client_flag":true,"code_signing_flag":false,"#,
    r#""email_protection_flag":false,"key_type":"ec","key_bits":384,"signature_bits":512,"use_pss":false,"#,
    r#""key_usage":["DigitalSignature"],"key_usage_is_named":true,"ext_key_usage":["ServerAuth"],"#,
    r#""ext_key_usage_oids":["1.2.3"],"use_csr_common_name":true,"use_csr_sans":true,"ou":["a","b"],"#,
    r#""organization":[],"country":["NZ"],"locality":[],"province":[],"street_address":[],"postal_code":[],"#,
    r#""strict_subject":false,"require_cn":true,"cn_validations":["disabled"],"policy_identifiers":["1.2.3","#,
    r#""{\"oid\":\"1.2.4\",\"cps\":\"https://x/cps\",\"notice\":\"héllo\"}"],"#,
    r#""basic_constraints_valid_for_non_ca":false,"not_before_duration":30,"not_before":"2030-01-01T00:00:00Z","#,
    r#""not_before_bound":"duration","not_after":"2031-01-01T01:00:00+01:00","#,
    r#""not_after_bound":"2032-01-01T00:00:00.5Z","generate_lease":false,"no_store":false,"no_store_metadata":true,"#,
    r#""serial_number_source":"json"}"#,
);
const ANY_KEY_ROLE_JSON: &str = concat!(
    r#"{"issuer_ref":"default","ttl":0,"max_ttl":0,"allow_localhost":true,"allowed_domains":[],"#,
    r#""allowed_domains_template":false,"allow_globs_in_identity_templates":false,"allow_bare_domains":false,"#,
    r#""allow_subdomains":false,"allow_glob_domains":false,"allow_wildcard_certificates":true,"#,
    r#""allow_any_name":false,"enforce_hostnames":true,"allow_ip_sans":true,"allowed_ip_sans_cidr":[],"#,
    r#""allowed_uri_sans":[],"allowed_uri_sans_template":false,"allowed_other_sans":[],"allowed_serial_numbers":[],"#,
    r#""allowed_user_ids":[],"allow_token_displayname":false,"server_flag":true,"client_flag":true,"#,
    r#""code_signing_flag":false,"email_protection_flag":false,"key_type":"any","key_bits":0,"signature_bits":0,"#,
    r#""use_pss":true,"key_usage":["DigitalSignature","KeyAgreement","KeyEncipherment"],"key_usage_is_named":false,"#,
    r#""ext_key_usage":[],"ext_key_usage_oids":[],"use_csr_common_name":true,"use_csr_sans":true,"ou":[],"#,
    r#""organization":[],"country":[],"locality":[],"province":[],"street_address":[],"postal_code":[],"#,
    r#""strict_subject":false,"require_cn":true,"cn_validations":["email","hostname"],"policy_identifiers":[],"#,
    r#""basic_constraints_valid_for_non_ca":false,"not_before_duration":30,"not_before":"","#,
    r#""not_before_bound":"permit","not_after":"","not_after_bound":"ttl-limited","generate_lease":false,"#,
    r#""no_store":false,"no_store_metadata":false,"serial_number_source":"json-csr"}"#,
);
const DEFAULT_CRL_CONFIG_JSON: &str = concat!(
    r#"{"expiry":"72h","disable":false,"ocsp_disable":false,"ocsp_expiry":"12h","ocsp_unknown_serial":"unknown","#,
    r#""auto_rebuild":false,"auto_rebuild_grace_period":"12h","enable_delta":false,"delta_rebuild_interval":"15m","#,
    r#""allow_expired_cert_revocation":false,"cross_cluster_revocation":false,"unified_crl":false,"#,
    r#""unified_crl_on_existing_paths":false,"max_crl_entries":-1}"#,
);
const CUSTOM_CRL_CONFIG_JSON: &str = concat!(
    r#"{"expiry":"90","disable":false,"ocsp_disable":false,"ocsp_expiry":"0","ocsp_unknown_serial":"good","#,
    r#""auto_rebuild":true,"auto_rebuild_grace_period":"30s","enable_delta":true,"delta_rebuild_interval":"20s","#,
    r#""allow_expired_cert_revocation":false,"cross_cluster_revocation":false,"unified_crl":false,"#,
    r#""unified_crl_on_existing_paths":false,"max_crl_entries":5}"#,
);
const DEFAULT_AUTO_TIDY_JSON: &str = concat!(
    r#"{"enabled":false,"what":{"tasks":[],"safety_buffer":259200,"revoked_safety_buffer":null,"#,
    r#""issuer_safety_buffer":31536000,"revocation_queue_safety_buffer":172800,"#,
    r#""acme_account_safety_buffer":2592000,"pause_duration":"0s","page_size":1000},"interval":43200,"#,
    r#""min_startup_backoff":300,"max_startup_backoff":900,"maintain_counts":false,"publish_counts":false}"#,
);
const CUSTOM_AUTO_TIDY_JSON: &str = concat!(
    r#"{"enabled":true,"what":{"tasks":["Certificates","Revocations","Acme"],"safety_buffer":3600,"#,
    r#""revoked_safety_buffer":7200,"issuer_safety_buffer":31536000,"revocation_queue_safety_buffer":172800,"#,
    r#""acme_account_safety_buffer":2592000,"pause_duration":"100ms","page_size":-1},"interval":3600,"#,
    r#""min_startup_backoff":300,"max_startup_backoff":900,"maintain_counts":true,"publish_counts":false}"#,
);
const URLS_JSON: &str = concat!(
    r#"{"issuing_certificates":["http://a.test/{{issuer_id}}"],"crl_distribution_points":["http://a.test/crl"],"#,
    r#""delta_crl_distribution_points":["http://a.test/d"],"ocsp_servers":["http://a.test/o"],"templating":true}"#,
);
const CLUSTER_JSON: &str = r#"{"path":"https://a.test/v1/pki","aia_path":""}"#;
const EXTERNAL_POLICY_JSON: &str = concat!(
    r#"{"enabled":false,"url":"https://e.test/x","timeout":3,"trusted_ca":"","trusted_leaves":"","#,
    r#""client_bundle":"","entity_jmespath":"a.b","group_jmespath":"@","updated_at":1900000000}"#,
);
const ISSUERS_JSON: &str = r#"{"default":"a","default_follows_latest_issuer":true,"changed_at":5,"former":{"b":"c"}}"#;

fn parse_and_reserialize<T: DeserializeOwned + Serialize>(document: &str) -> T {
    let value = serde_json::from_str(document).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), document);
    value
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn duration(text: &str) -> DurationText {
    DurationText::new(text).unwrap()
}

#[test]
fn stored_roles_of_older_versions_are_read() {
    assert_eq!(parse_and_reserialize::<Role>(DEFAULT_ROLE_JSON), Role::default());
    let any = Role {
        keys: RoleKeys::Any,
        signature_bits: SignatureBits::ISSUER_DEFAULT,
        use_pss: true,
        not_after_bound: NotAfterBound::TtlLimited,
        ..Role::default()
    };
    assert_eq!(parse_and_reserialize::<Role>(ANY_KEY_ROLE_JSON), any);
    let time = |text: &str| Rfc3339Text::new("time", text).unwrap();
    let policies = vec![
        PolicyInformation::new("1.2.3", None, None).unwrap(),
        PolicyInformation::new("1.2.4", Some("https://x/cps".to_owned()), Some("h\u{e9}llo".to_owned())).unwrap(),
    ];
    let rich = Role {
        issuer_ref: "root".to_owned(),
        ttl: 5_400,
        max_ttl: 21_600,
        allowed_domains: texts(&["a.test", "b.test"]),
        allow_subdomains: true,
        allowed_ip_sans_cidr: texts(&["10.0.0.0/8"]),
        allowed_other_sans: texts(&["1.2.3;UTF8:*"]),
        keys: RoleKeys::new("ec", 384).unwrap(),
        signature_bits: SignatureBits::new(512).unwrap(),
        key_usage: texts(&["DigitalSignature"]),
        key_usage_is_named: true,
        ext_key_usage: texts(&["ServerAuth"]),
        ext_key_usage_oids: texts(&["1.2.3"]),
        ou: texts(&["a", "b"]),
        country: texts(&["NZ"]),
        cn_validations: texts(&["disabled"]),
        policy_identifiers: CertificatePolicies::new(policies).unwrap(),
        not_before: Some(time("2030-01-01T00:00:00Z")),
        not_before_bound: NotBeforeBound::Duration,
        not_after: Some(time("2031-01-01T01:00:00+01:00")),
        not_after_bound: NotAfterBound::Until(time("2032-01-01T00:00:00.5Z")),
        no_store_metadata: true,
        serial_number_source: SerialNumberSource::Json,
        ..Role::default()
    };
    assert_eq!(parse_and_reserialize::<Role>(CUSTOM_ROLE_JSON), rich);
    assert_eq!(rich.clone().checked().unwrap().0, rich);
}

#[test]
fn older_role_gets_defaults_for_missing_fields() {
    let role: Role = serde_json::from_str(r#"{"key_type":"ec","key_bits":256,"unknown":1}"#).unwrap();
    assert_eq!(role, Role { keys: RoleKeys::new("ec", 256).unwrap(), ..Role::default() });
    assert_eq!(serde_json::from_str::<Role>("{}").unwrap(), Role::default());
}

#[test]
fn stored_settings_of_older_versions_are_read() {
    assert_eq!(parse_and_reserialize::<CrlConfig>(DEFAULT_CRL_CONFIG_JSON), CrlConfig::default());
    let crl = CrlConfig {
        expiry: duration("90"),
        ocsp_expiry: duration("0"),
        ocsp_unknown_serial: UnknownSerialStatus::Good,
        auto_rebuild: true,
        auto_rebuild_grace_period: duration("30s"),
        enable_delta: true,
        delta_rebuild_interval: duration("20s"),
        max_crl_entries: Some(5),
        ..CrlConfig::default()
    };
    assert_eq!(parse_and_reserialize::<CrlConfig>(CUSTOM_CRL_CONFIG_JSON), crl);
    assert_eq!(parse_and_reserialize::<AutoTidyConfig>(DEFAULT_AUTO_TIDY_JSON), AutoTidyConfig::default());
    let tidy = AutoTidyConfig {
        enabled: true,
        run_config: TidyConfig {
            tasks: [TidyTask::Certificates, TidyTask::Revocations, TidyTask::Acme].into(),
            safety_buffer: 3_600,
            revoked_safety_buffer: Some(7_200),
            pause_duration: duration("100ms"),
            page_size: -1,
            ..TidyConfig::default()
        },
        interval_duration: 3_600,
        maintain_stored_certificate_counts: true,
        ..AutoTidyConfig::default()
    };
    assert_eq!(parse_and_reserialize::<AutoTidyConfig>(CUSTOM_AUTO_TIDY_JSON), tidy);
    let urls = Urls {
        issuing_certificates: texts(&["http://a.test/{{issuer_id}}"]),
        crl_distribution_points: texts(&["http://a.test/crl"]),
        delta_crl_distribution_points: texts(&["http://a.test/d"]),
        ocsp_servers: texts(&["http://a.test/o"]),
        templating: true,
    };
    assert_eq!(parse_and_reserialize::<Urls>(URLS_JSON), urls);
    let cluster = Cluster { path: ClusterUrl::new("path", "https://a.test/v1/pki").unwrap(), ..Cluster::default() };
    assert_eq!(parse_and_reserialize::<Cluster>(CLUSTER_JSON), cluster);
    let policy = external_policy::ExternalPolicyConfig {
        external_service_url: "https://e.test/x".to_owned(),
        timeout: 3,
        entity_jmespath: "a.b".to_owned(),
        group_jmespath: "@".to_owned(),
        updated_at: 1_900_000_000,
        ..external_policy::ExternalPolicyConfig::default()
    };
    assert!(parse_and_reserialize::<external_policy::ExternalPolicyConfig>(EXTERNAL_POLICY_JSON) == policy);
    let issuers = IssuersConfig {
        default: "a".to_owned(),
        default_follows_latest_issuer: true,
        changed_at: 5,
        former: [("b".to_owned(), "c".to_owned())].into(),
    };
    assert_eq!(parse_and_reserialize::<IssuersConfig>(ISSUERS_JSON), issuers);
}
