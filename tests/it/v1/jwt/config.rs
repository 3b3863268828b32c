//! The configuration: accepted and rejected fields, and what a read returns.

use serde_json::{Value, json};
use signet::auth::LoginSettings;

use super::Bed;
use crate::directory::Issuer;
use crate::support::{App, Client, tests_on};

tests_on!(
    bare: Bed::bare(App::builder()) =>
        a_configuration_is_written_merged_and_read,
        exactly_one_permitted_key_source_is_accepted,
        configuration_is_rejected_if_keys_are_unavailable;
    configured: Bed::start() =>
        browser_login_fields_are_rejected_by_name,
        mounts_have_issuers_of_their_own;
);

async fn refused(bed: &Bed, config: Value, text: &str) {
    let answer = bed.app.client.post("auth/jwt/config", config.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{config}: {}", answer.text);
}

async fn a_configuration_is_written_merged_and_read(bed: &Bed) {
    let client = &bed.app.client;
    assert_eq!(client.get("auth/jwt/config").await.text, "{\"errors\":[]}");
    bed.configure(json!({"oidc_discovery_url": bed.issuer.url, "default_role": "CI"})).await;
    bed.configure(json!({"bound_issuer": "https://issuer.example", "jwt_supported_algs": ["ES256", "RS256"]})).await;
    let mut want = json!({
        "oidc_discovery_url": bed.issuer.url, "oidc_discovery_ca_pem": "", "oidc_client_id": "",
        "oidc_response_mode": "", "oidc_response_types": [], "default_role": "ci", "jwt_validation_pubkeys": [],
        "jwt_supported_algs": ["ES256", "RS256"], "jwks_url": "", "jwks_ca_pem": "",
        "bound_issuer": "https://issuer.example", "provider_config": {}, "override_allowed_server_names": [],
        "namespace_in_state": true, "status": "valid",
    });
    assert_eq!(client.get("auth/jwt/config").await.body["data"], want);
    // A new key source replaces the old one and nothing else.
    let set = format!("{}/keys", bed.issuer.url);
    bed.configure(json!({"jwks_url": set, "namespace_in_state": false})).await;
    want["oidc_discovery_url"] = json!("");
    want["jwks_url"] = json!(set);
    want["namespace_in_state"] = json!(false);
    assert_eq!(client.get("auth/jwt/config").await.body["data"], want);
    bed.configure(json!({"bound_issuer": "", "jwt_supported_algs": "", "default_role": ""})).await;
    let shown = client.get("auth/jwt/config").await.body["data"].clone();
    assert_eq!((&shown["bound_issuer"], &shown["jwt_supported_algs"]), (&json!(""), &json!([])));
}

async fn exactly_one_permitted_key_source_is_accepted(bed: &Bed) {
    let one = "exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set";
    let url = bed.issuer.url.clone();
    let set = format!("{}/keys", bed.issuer.url);
    refused(bed, json!({}), one).await;
    refused(bed, json!({"bound_issuer": "x"}), one).await;
    refused(bed, json!({"jwks_url": set, "oidc_discovery_url": url}), one).await;
    refused(bed, json!({"jwks_url": set, "jwt_validation_pubkeys": [bed.issuer.key.pem()]}), one).await;
    bed.configure(json!({"jwks_url": set})).await;
    refused(bed, json!({"jwks_url": ""}), one).await;
    let https = |field: &str| format!("{field}: must be an absolute https URL without credentials");
    for wrong in ["http://issuer.example/keys", "issuer.example", "ftp://127.0.0.1/", "https://me:word@issuer.example/"]
    {
        refused(bed, json!({"jwks_url": wrong}), &https("jwks_url")).await;
        refused(bed, json!({"oidc_discovery_url": wrong}), &https("oidc_discovery_url")).await;
    }
    for wrong in
        ["https://169.254.169.254/latest", "https://[fe80::1]/", "https://[::ffff:a9fe:a9fe]/", "https://0.0.0.0/"]
    {
        refused(
            bed,
            json!({"jwks_url": wrong}),
            "jwks_url: the host's address is not permitted (loopback, link-local, multicast or metadata service)",
        )
        .await;
    }
    let known = format!("{url}/.well-known/openid-configuration");
    refused(bed, json!({"oidc_discovery_url": known}), "'oidc_discovery_url' contains '.well-known' component").await;
    refused(bed, json!({"oidc_discovery_url": format!("{url}?a=b")}), "oidc_discovery_url: must have no query").await;
    let key = bed.issuer.key.key.to_pkcs8().unwrap();
    let key = signet::x509::pem::encode("PRIVATE KEY", key.expose());
    refused(bed, json!({"jwks_ca_pem": key}), "jwks_ca_pem: must contain only PEM blocks of type CERTIFICATE").await;
    assert_eq!(bed.app.client.get("auth/jwt/config").await.body["data"]["jwks_url"], json!(set), "nothing was written");
}

#[actix_web::test]
async fn loopback_issuer_is_called_only_if_configured() {
    let bed = Bed::bare(App::builder()).await;
    let issuer = bed.issuer;
    let place = bed.app.leave().await;
    // The default, without the loopback.
    let options = signet::server::ServerOptions { logins: LoginSettings::default(), ..place.options() };
    let running = signet::server::Server::open(options).await.unwrap().start().await.unwrap();
    let client = Client::new(running.address(), &place.token);
    let refused = async |config: Value, text: &str| {
        let answer = client.post("auth/jwt/config", config.clone()).await;
        assert_eq!((answer.status, answer.error()), (400, text), "{config}: {}", answer.text);
    };
    let https = "oidc_discovery_url: must be an absolute https URL without credentials";
    refused(json!({"oidc_discovery_url": issuer.url}), https).await;
    for host in ["127.0.0.1", "localhost", "a.localhost", "[::1]", "2130706433", "[::ffff:7f00:1]"] {
        let url = format!("https://{host}/keys");
        refused(
            json!({"jwks_url": url}),
            "jwks_url: the host's address is not permitted (loopback, link-local, multicast or metadata service)",
        )
        .await;
    }
    let (documents, key_sets) = {
        let seen = issuer.lock();
        (seen.documents, seen.key_sets)
    };
    assert_eq!((documents, key_sets), (0, 0));
    running.stop().await.unwrap();
}

async fn browser_login_fields_are_rejected_by_name(bed: &Bed) {
    for (field, value) in [
        ("oidc_client_id", json!("app")),
        ("oidc_client_secret", json!("hunter2")),
        ("oidc_response_mode", json!("query")),
        ("oidc_response_types", json!(["code"])),
        ("provider_config", json!({"provider": "azure"})),
        ("override_allowed_server_names", json!("issuer.example")),
        ("jwks_pairs", json!([{"jwks_url": "https://issuer.example"}])),
    ] {
        refused(bed, json!({field: value}), &format!("{field}: not supported; only logins with a JWT are supported"))
            .await;
        let neutral = match value {
            Value::String(_) => json!(""),
            Value::Array(_) => json!([]),
            _ => json!({}),
        };
        bed.configure(json!({field: neutral})).await;
    }
}

async fn configuration_is_rejected_if_keys_are_unavailable(bed: &Bed) {
    bed.issuer.lock().down = Some(503);
    let config = json!({"oidc_discovery_url": bed.issuer.url});
    let gone = "jwt: the issuer's discovery document: answered with status 503";
    refused(bed, config.clone(), &format!("error checking oidc discovery URL: {gone}")).await;
    let set = json!({"jwks_url": format!("{}/keys", bed.issuer.url)});
    refused(bed, set, "error checking jwks URL: jwt: the issuer's key set: answered with status 503").await;
    let mut config = config;
    config["skip_jwks_validation"] = json!(true);
    let answer = bed.app.client.post("auth/jwt/config", config).await;
    assert_eq!(answer.body["warnings"], json!(["error checking oidc discovery URL"]), "{}", answer.text);
    let shown = bed.app.client.get("auth/jwt/config").await.body;
    assert_eq!(shown["data"]["status"], json!("invalid"));
    assert_eq!(shown["warnings"], json!([format!("failed to construct JWK validator: {gone}")]));
    bed.role("ci", json!({"bound_audiences": "signet"})).await;
    let answer = bed.log_in("ci", &bed.token()).await;
    assert_eq!((answer.status, answer.error(), &answer.headers["retry-after"]), (503, gone, &"1".parse().unwrap()));
    // A port without a listener.
    let nobody = "http://127.0.0.1:9/keys";
    let answer = bed.app.client.post("auth/jwt/config", json!({"jwks_url": nobody})).await;
    assert!(answer.error().contains("cannot be reached, or its TLS certificate is not trusted"), "{}", answer.text);
}

async fn mounts_have_issuers_of_their_own(bed: &Bed) {
    let client = &bed.app.client;
    let other = Issuer::start();
    assert_eq!(client.post("sys/auth/ci/jwt", json!({"type": "jwt"})).await.status, 204);
    client.post("auth/ci/jwt/config", json!({"oidc_discovery_url": other.url})).await.assert_status(204);
    let role = json!({"user_claim": "sub", "bound_subject": "build-7"});
    assert_eq!(client.post("auth/ci/jwt/role/other", role).await.status, 204);
    let token = other.token(json!({}));
    let stranger = client.with_token("");
    let answer = stranger.post("auth/ci/jwt/login", json!({"role": "other", "jwt": token})).await;
    assert_eq!(answer.body["auth"]["metadata"], json!({"role": "other"}), "{}", answer.text);
    assert_eq!(stranger.post("auth/jwt/login", json!({"role": "other", "jwt": token})).await.status, 400);
    bed.refuses("ci", &other.token(json!({"aud": "signet"})), "the token's issuer (iss) is not the expected one").await;
}
