//! Accepted and rejected JWTs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Bed, auth};
use crate::directory::{Issuer, TokenKey, encoded, unsigned};
use crate::support::{App, tests_on, with};

tests_on!(configured: Bed::start() =>
    login_returns_a_token_with_the_role_settings,
    cve_2024_5798_audience_is_never_optional,
    token_of_another_issuer_is_rejected,
    algorithm_and_key_in_the_token_header_are_not_trusted,
    duplicate_members_are_rejected,
    login_from_another_network_is_rejected_before_any_fetch,
    login_body_is_limited_to_64_kib,
);

const UNKNOWN_KEY: &str = "the token is signed with a key that is not known";
const WRONG: &str = "the token's signature is wrong";
const ALGORITHM: &str = "the token's signature algorithm (alg) is not accepted by this auth method";

async fn login_returns_a_token_with_the_role_settings(bed: &Bed) {
    bed.role("ci", json!({"token_ttl": "20m", "claim_mappings": {"team": "crew", "absent": "nothing"}})).await;
    let answer = bed.with_claims(json!({"team": "blue"})).await;
    let auth = auth(&answer);
    assert_eq!((&auth["lease_duration"], &auth["renewable"]), (&json!(1200), &json!(true)));
    assert_eq!(auth["policies"], json!(["default", "web"]));
    assert_eq!(auth["metadata"], json!({"role": "ci", "crew": "blue"}));
    let own = bed.app.client.holder(&answer);
    let found = own.get("auth/token/lookup-self").await.body["data"].clone();
    assert_eq!((&found["display_name"], &found["path"]), (&json!("jwt-build-7"), &json!("auth/jwt/login")));
    assert_eq!((&found["meta"], &found["orphan"]), (&auth["metadata"], &json!(true)));
}

#[actix_web::test]
async fn missing_or_malformed_login_parameters_are_named() {
    let bed = Bed::bare(App::builder()).await;
    let good = bed.token();
    let stranger = bed.app.client.with_token("");
    let ask = async |body: Value, text: &str| {
        stranger.post("auth/jwt/login", body).await.assert_error(400, text);
    };
    ask(json!({"role": "ci", "jwt": good}), "could not load configuration").await;
    bed.configure(json!({"oidc_discovery_url": bed.issuer.url})).await;
    ask(json!({"jwt": good}), "missing role").await;
    ask(json!({"role": "x", "jwt": good}), "role \"x\" could not be found").await;
    ask(json!({"role": "x".repeat(129), "jwt": good}), "role: longer than 128 bytes").await;
    bed.role("ci", json!({"bound_audiences": "signet"})).await;
    ask(json!({"role": "ci"}), "missing token").await;
    ask(json!({"role": "ci", "jwt": ""}), "missing token").await;
    let form = "jwt: must be three parts of base64url, joined by dots";
    for wrong in ["x", "a.b", "a..c", ".b.c", "a.b.c.d", "a.b.c=", "a.b+.c", "a.b. c", "ä.b.c"] {
        ask(json!({"role": "ci", "jwt": wrong}), form).await;
    }
    for wrong in [json!({"role": ["ci"], "jwt": good}), json!({"role": "ci", "jwt": 7}), json!({"jwt": [good]})] {
        assert_eq!(stranger.post("auth/jwt/login", wrong).await.status, 400);
    }
    assert_eq!(bed.issuer.lock().documents, 1, "nobody was asked for any of these, but when it was configured");
    bed.configure(json!({"default_role": "CI"})).await;
    assert_eq!(stranger.post("auth/jwt/login", json!({"jwt": good})).await.status, 200);
    assert_eq!(stranger.post("auth/jwt/login", json!({"role": "cI", "jwt": good})).await.status, 200);
    bed.app.stop().await;
}

async fn cve_2024_5798_audience_is_never_optional(bed: &Bed) {
    for (audience, reason) in [
        (json!("signet/"), "the token's audience (aud) is not an accepted one"),
        (json!("Signet"), "the token's audience (aud) is not an accepted one"),
        (json!(["other", "signet2"]), "the token's audience (aud) is not an accepted one"),
        (json!(null), "the token has no audience"),
        (json!([]), "the token has no audience"),
        (json!(7), "the token's audience (aud) must be a string or a list of strings"),
        (json!(["signet", 7]), "the token's audience (aud) must be a string or a list of strings"),
        (json!({"signet": "signet"}), "the token's audience (aud) must be a string or a list of strings"),
    ] {
        bed.refuses("ci", &bed.issuer.token(json!({"aud": audience})), reason).await;
    }
    assert_eq!(bed.with_claims(json!({"aud": ["other", "signet"]})).await.status, 200);
    // A role without bound audiences accepts only tokens without an audience.
    bed.role("subject", json!({"bound_subject": "build-7"})).await;
    let reason = "audience claim found in JWT but no audiences bound to the role";
    bed.refuses("subject", &bed.token(), reason).await;
    assert_eq!(bed.log_in("subject", &bed.issuer.token(json!({}))).await.status, 200);
}

async fn token_of_another_issuer_is_rejected(bed: &Bed) {
    let other = Issuer::start();
    let own_key = TokenKey::rsa("k9", 1);
    other.publish(&own_key);
    let claims = json!({"aud": "signet"});
    bed.refuses("ci", &own_key.token(&other.claims(claims.clone())), UNKNOWN_KEY).await;
    // With the name of a known key and the right claims.
    let named = TokenKey { kid: "k1".to_owned(), ..own_key };
    bed.refuses("ci", &named.token(&bed.issuer.claims(claims.clone())), WRONG).await;
    // Both issuers have the same key: the issuer claim decides.
    bed.refuses("ci", &other.token(claims), "the token's issuer (iss) is not the expected one").await;
    let another = "the token's issuer (iss) is not the expected one";
    for issuer in [json!(null), json!(""), json!(format!("{}/", bed.issuer.url)), json!([bed.issuer.url])] {
        bed.refuses("ci", &bed.issuer.token(json!({"aud": "signet", "iss": issuer})), another).await;
    }
    bed.configure(json!({"bound_issuer": "https://issuer.example"})).await;
    bed.refuses("ci", &bed.token(), "the token's issuer (iss) is not the expected one").await;
    assert_eq!(bed.with_claims(json!({"iss": "https://issuer.example"})).await.status, 200);
}

async fn algorithm_and_key_in_the_token_header_are_not_trusted(bed: &Bed) {
    let key = &bed.issuer.key;
    let claims = bed.issuer.claims(json!({"aud": "signet"}));
    for none in ["none", "None", "NONE", "nOnE"] {
        bed.refuses("ci", &unsigned(&json!({"alg": none, "kid": "k1"}), &claims), ALGORITHM).await;
    }
    bed.refuses("ci", &unsigned(&json!({"alg": "RS256", "kid": "k1"}), &claims), WRONG).await;
    bed.refuses("ci", &unsigned(&json!({"kid": "k1"}), &claims), ALGORITHM).await;
    bed.refuses("ci", &unsigned(&json!({"alg": ["RS256"], "kid": "k1"}), &claims), ALGORITHM).await;
    // HMAC with the public key as the secret, in all published forms.
    for secret in [key.pem().into_bytes(), key.key.public().spki().to_vec(), key.public()["n"].to_string().into_bytes()]
    {
        let signed = format!("{}.{}", encoded(r#"{"alg":"HS256","kid":"k1"}"#), encoded(&claims.to_string()));
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
        let tag = URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&secret, signed.as_bytes()));
        bed.refuses("ci", &format!("{signed}.{tag}"), ALGORITHM).await;
    }
    for other in ["PS256", "RS384", "RS512"] {
        bed.refuses("ci", &key.token_with(json!({"alg": other, "kid": "k1"}), &claims), ALGORITHM).await;
    }
    bed.refuses("ci", &TokenKey::new("k1", "ES256").token(&claims), ALGORITHM).await;
    // Keys and key URLs in the header are ignored.
    let mallory = TokenKey::rsa("m", 1);
    let own = Issuer::start();
    let mut header = json!({"alg": "RS256", "kid": "m", "jwk": mallory.public(), "x5c": [mallory.pem()]});
    header["jku"] = json!(format!("{}/keys", own.url));
    header["x5u"] = json!(format!("{}/chain", own.url));
    bed.refuses("ci", &mallory.token_with(header.clone(), &claims), UNKNOWN_KEY).await;
    header["kid"] = json!("k1");
    bed.refuses("ci", &mallory.token_with(header.clone(), &claims), WRONG).await;
    assert_eq!(own.lock().key_sets, 0);
    assert_eq!(own.lock().others, [""; 0]);
    // With a known key they do no harm.
    assert_eq!(bed.log_in("ci", &key.token_with(header, &claims)).await.status, 200);
    let critical = json!({"alg": "RS256", "kid": "k1", "crit": ["exp"], "exp": 1});
    let reason = "the token has critical extensions (crit), which are not supported";
    bed.refuses("ci", &key.token_with(critical, &claims), reason).await;
}

#[actix_web::test]
async fn times_are_checked_to_the_second_without_leeway() {
    let bed = Bed::of(App::builder().manual_clock(signet::clock::Clock::system().now())).await;
    let now = bed.app.clock.now().unix_timestamp();
    let none = json!({"clock_skew_leeway": -1, "expiration_leeway": "-1", "not_before_leeway": -1});
    bed.role("ci", none).await;
    let times = json!({"iat": now, "nbf": now, "exp": now + 3600});
    let with_times = async |more: &Value| bed.with_claims(with(times.clone(), more.clone())).await;
    for (claims, reason) in [
        (json!({"exp": now}), "the token is expired"),
        (json!({"exp": now - 1}), "the token is expired"),
        (json!({"nbf": now + 1}), "token is not yet valid"),
        (json!({"iat": now + 1}), "the token's issue time (iat) is in the future"),
        (json!({"exp": null}), "the token is expired"),
        (json!({"exp": null, "nbf": null, "iat": null}), "the token has none of the claims exp, nbf and iat"),
        (json!({"exp": 0, "nbf": 0, "iat": 0}), "the token has none of the claims exp, nbf and iat"),
        (json!({"exp": "4102444800"}), "the token's exp is not a number"),
        (json!({"exp": [now + 60]}), "the token's exp is not a number"),
        (json!({"nbf": "soon"}), "the token's nbf is not a number"),
        (json!({"nbf": "1"}), "the token's nbf is not a number"),
        (json!({"iat": true}), "the token's iat is not a number"),
    ] {
        with_times(&claims).await.assert_error(403, reason);
    }
    for claims in [json!({"exp": now + 1, "nbf": now, "iat": now}), json!({"exp": now as f64 + 60.5, "nbf": null})] {
        assert_eq!(with_times(&claims).await.status, 200, "{claims}");
    }
    // Default leeways: 60 s for clocks, 150 s for absent times.
    bed.role("ci", json!({"clock_skew_leeway": 0, "expiration_leeway": 0, "not_before_leeway": 0})).await;
    for (claims, status) in [
        (json!({"exp": now - 59}), 200),
        (json!({"exp": now - 60}), 403),
        (json!({"nbf": now + 60}), 200),
        (json!({"nbf": now + 61}), 403),
        (json!({"exp": null, "nbf": null, "iat": now - 209}), 200),
        (json!({"exp": null, "nbf": null, "iat": now - 210}), 403),
        (json!({"exp": now + 210, "nbf": null, "iat": null}), 200),
        (json!({"exp": now + 211, "nbf": null, "iat": null}), 403),
    ] {
        assert_eq!(with_times(&claims).await.status, status, "{claims}");
    }
    bed.app.stop().await;
}

async fn duplicate_members_are_rejected(bed: &Bed) {
    let key = &bed.issuer.key;
    let claims = bed.issuer.claims(json!({"aud": "signet"})).to_string();
    let twice = format!("{},\"sub\":\"admin\"}}", claims.trim_end_matches('}'));
    let header = r#"{"alg":"RS256","kid":"k1"}"#;
    let token = key.signed(&encoded(header), &encoded(&twice), "RS256");
    bed.refuses("ci", &token, "the token's claims are not a JSON object without duplicate members").await;
    for (header, reason) in [
        (
            r#"{"alg":"none","kid":"k1","alg":"RS256"}"#,
            "the token's header is not a JSON object without duplicate members",
        ),
        (
            r#"{"alg":"RS256","kid":"k0","kid":"k1"}"#,
            "the token's header is not a JSON object without duplicate members",
        ),
        ("[]", "the token's header is not a JSON object without duplicate members"),
        ("{}", ALGORITHM),
        (r#"{"alg":"RS256","kid":7}"#, "the token's kid is not a text of 1 to 1024 bytes"),
        (r#"{"alg":"RS256","kid":""}"#, "the token's kid is not a text of 1 to 1024 bytes"),
    ] {
        bed.refuses("ci", &key.signed(&encoded(header), &encoded(&claims), "RS256"), reason).await;
    }
    for wrong in ["[]", "null", "7", "not json"] {
        let token = key.signed(&encoded(header), &encoded(wrong), "RS256");
        bed.refuses("ci", &token, "the token's claims are not a JSON object without duplicate members").await;
    }
    // A token without a key id is tried with every key.
    let token = key.signed(&encoded(r#"{"alg":"RS256"}"#), &encoded(&claims), "RS256");
    assert_eq!(bed.log_in("ci", &token).await.status, 200);
    // A non-canonical encoding of the signature is invalid.
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let last = signature.len() - 1;
    let was_normalized = ['B', 'C', 'D', 'R', 'h', 'x'].map(|end| format!("{signed}.{}{end}", &signature[..last]));
    for token in was_normalized.iter().filter(|was_normalized| **was_normalized != token) {
        assert_eq!(bed.log_in("ci", token).await.status, 403);
    }
}

async fn login_from_another_network_is_rejected_before_any_fetch(bed: &Bed) {
    bed.role("far", json!({"bound_audiences": "signet", "token_bound_cidrs": "192.0.2.0/24"})).await;
    let asked = bed.issuer.lock().documents;
    bed.log_in("far", &bed.token()).await.assert_denied();
    assert_eq!(bed.issuer.lock().documents, asked);
}

async fn login_body_is_limited_to_64_kib(bed: &Bed) {
    let asked = bed.issuer.lock().documents;
    let padded = |octets: usize| bed.issuer.token(json!({"aud": "signet", "pad": "x".repeat(octets)}));
    assert_eq!(bed.log_in("ci", &padded(45_000)).await.status, 200);
    for octets in [55_000, 1 << 20] {
        bed.log_in("ci", &padded(octets))
            .await
            .assert_error(400, "jwt: too long (the request body may have at most 65536 bytes)");
    }
    assert_eq!(bed.issuer.lock().documents, asked + 1, "for the one that was let in");
}
