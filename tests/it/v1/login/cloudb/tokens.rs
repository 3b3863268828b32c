//! Tokens of the directory, and roles that need only a token.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::World;
use crate::directory::{TokenKey, encoded, now, unsigned};
use crate::provider::{OTHER_TENANT, RESOURCE, TENANT};
use crate::support::tests_on;

tests_on!(
    prepared: world() =>
        role_with_principals_needs_only_the_token,
        missing_or_invalid_parameters_are_named_in_order,
        cve_2024_5798_audience_is_never_optional,
        token_of_another_tenant_is_rejected_despite_valid_signature,
        only_rs256_with_a_directory_key_is_accepted,
        times_are_checked_without_leeway,
        too_long_token_is_rejected,
        token_without_principal_is_rejected;
    enabled: World::start() =>
        principals_and_groups_ignore_letter_case,
        group_overage_is_reported;
);

async fn world() -> World {
    let world = World::start().await;
    world.role(json!({"bound_service_principal_ids": "o1", "policies": "p"})).await;
    world
}

async fn role_with_principals_needs_only_the_token(world: &World) {
    let answer = world.with(json!({})).await.assert_status(200);
    let auth = &answer.body["auth"];
    assert_eq!((&auth["policies"], &auth["renewable"]), (&json!(["default", "p"]), &json!(true)));
    let state = world.provider.lock();
    assert_eq!((state.arm_calls(), state.count("oauth2")), (0, 0));
    assert_eq!(state.asked.len(), 2, "{:?}", state.asked);
}

async fn principals_and_groups_ignore_letter_case(world: &World) {
    world.role(json!({"bound_service_principal_ids": "O1,O2", "bound_group_ids": ["G1"]})).await;
    assert_eq!(world.with(json!({"groups": ["g0", "g1"]})).await.status, 200);
    world.with(json!({"groups": ["g10"]})).await.assert_error(403, "groups not authorized");
    world.with(json!({"oid": "o11", "groups": ["g1"]})).await.assert_error(403, "service principal not authorized");
}

async fn missing_or_invalid_parameters_are_named_in_order(world: &World) {
    let jwt = world.provider.mint(json!({}));
    for (body, text) in [
        (json!({}), "jwt is required"),
        (json!({"role": "r", "jwt": ""}), "jwt is required"),
        (json!({ "jwt": jwt }), "role is required"),
        (json!({"jwt": jwt, "role": "x"}), "invalid role name \"x\""),
        (json!({"jwt": jwt, "role": "r", "subscription_id": "s1"}), "invalid subscription id \"s1\""),
        (json!({"jwt": jwt, "role": "r", "resource_group_name": "a/b"}), "invalid resource group name \"a/b\""),
        (json!({"jwt": jwt, "role": "r", "vmss_name": "9"}), "invalid vmss_name \"9\""),
        (json!({"jwt": jwt, "role": "r", "vm_name": "web\n"}), "invalid vm name \"web\\n\""),
    ] {
        world.login(body).await.assert_error(400, text);
    }
    for bad in ["a.b", "a.b.c.d", "a b.c.d", "....", "é.b.c", ".b.c"] {
        let answer = world.login(json!({"jwt": bad, "role": "r"})).await;
        answer.assert_error(400, "jwt: must be three parts of base64url, joined by dots");
    }
    assert!(world.provider.lock().asked.is_empty());
}

async fn cve_2024_5798_audience_is_never_optional(world: &World) {
    for audience in [json!(RESOURCE.trim_end_matches('/')), json!(null), json!([]), json!(""), json!(["api://other"])] {
        let answer = world.with(json!({ "aud": audience })).await;
        assert_eq!(answer.status, 403, "{audience}: {}", answer.text);
    }
    assert_eq!(world.with(json!({"aud": ["api://other", RESOURCE]})).await.status, 200);
}

async fn token_of_another_tenant_is_rejected_despite_valid_signature(world: &World) {
    let issuer = format!("https://sts.windows.net/{OTHER_TENANT}/");
    world.with(json!({ "iss": issuer })).await.assert_error(403, "the token's issuer (iss) is not the expected one");
    assert_eq!(world.with(json!({"iss": null})).await.status, 403);
    world.with(json!({"tid": OTHER_TENANT})).await.assert_error(403, "the token was issued for another tenant");
    assert_eq!(world.with(json!({"tid": 7})).await.status, 403);
    assert_eq!(world.with(json!({"tid": TENANT.to_uppercase()})).await.status, 200);
    assert_eq!(world.with(json!({"tid": null})).await.status, 200);
}

async fn only_rs256_with_a_directory_key_is_accepted(world: &World) {
    let key = &world.provider.key;
    let claims = world.provider.claims(json!({}));
    let header = |more: Value| {
        let mut header = json!({"alg": "RS256", "typ": "JWT", "kid": "k1"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        header
    };
    let evil = TokenKey::rsa("k1", 1);
    let place = format!("{}/evil-keys", world.provider.url);
    // HMAC with the public key as the secret.
    let signed = format!("{}.{}", encoded(&header(json!({"alg": "HS256"})).to_string()), encoded(&claims.to_string()));
    let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key.pem().as_bytes());
    let tag = aws_lc_rs::hmac::sign(&secret, signed.as_bytes());
    let hs256 = format!("{signed}.{}", base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, tag));
    for (what, token) in [
        ("none", unsigned(&header(json!({"alg": "none"})), &claims)),
        ("HS256", hs256),
        ("PS256", key.token_with(header(json!({"alg": "PS256"})), &claims)),
        ("RS384", key.token_with(header(json!({"alg": "RS384"})), &claims)),
        ("another key", evil.token(&claims)),
        ("jwk", evil.token_with(header(json!({"jwk": evil.public()})), &claims)),
        ("jku", evil.token_with(header(json!({ "jku": place })), &claims)),
        ("x5u", evil.token_with(header(json!({ "x5u": place })), &claims)),
        ("crit", key.token_with(header(json!({"crit": ["exp"]})), &claims)),
        ("no kid", key.token_with(json!({"alg": "RS256"}), &claims)),
        ("kid of another type", key.token_with(header(json!({"kid": 7})), &claims)),
        ("no signature", unsigned(&header(json!({})), &claims)),
        ("twice", {
            let twice = claims.to_string().replacen('{', "{\"oid\":\"o1\",", 1);
            key.signed(&encoded(&header(json!({})).to_string()), &encoded(&twice), "RS256")
        }),
    ] {
        let answer = world.login(json!({"role": "r", "jwt": token})).await;
        assert_eq!(answer.status, 403, "{what}: {}", answer.text);
    }
    assert_eq!(world.with(json!({})).await.status, 200);
    assert_eq!(world.provider.lock().count("evil"), 0);
}

async fn times_are_checked_without_leeway(world: &World) {
    let now = now();
    for (claims, text) in [
        (json!({ "exp": now }), "the token is expired"),
        (json!({"exp": now - 1}), "the token is expired"),
        (json!({"exp": null}), "the token has no expiration time (exp)"),
        (json!({"nbf": now + 30}), "token is not yet valid"),
        (json!({"iat": now + 600}), "the token's issue time (iat) is in the future"),
        (json!({"exp": (now + 60).to_string()}), "the token's exp is not a number"),
    ] {
        world.with(claims).await.assert_error(403, text);
    }
    assert_eq!(world.with(json!({"exp": now as f64 + 60.5, "nbf": null, "iat": now + 60})).await.status, 200);
}

#[actix_web::test]
async fn keys_are_fetched_once_in_ten_seconds_for_all_logins() {
    let world = World::still(|builder| builder).await;
    world.role(json!({"bound_service_principal_ids": "o1", "policies": "p"})).await;
    assert_eq!(world.with(json!({})).await.status, 200);
    assert_eq!(world.provider.lock().count("discovery/keys"), 1);
    // Keys are fetched at most once in ten seconds, even for tokens that name other keys.
    let claims = world.provider.claims(json!({}));
    let random = |at: usize| TokenKey::rsa(&format!("random-{at}"), 1).token(&claims);
    let logins = join_all((0..100).map(|at| world.login(json!({"role": "r", "jwt": random(at)})))).await;
    assert!(logins.iter().all(|login| login.status == 403));
    assert_eq!(world.provider.lock().count("discovery/keys"), 1);
    let new = TokenKey::rsa("k2", 2);
    world.provider.lock().keys.push(new.public());
    world.app.clock.advance(Duration::from_secs(10));
    let token = new.token(&claims);
    let logins = join_all((0..100).map(|_| world.login(json!({"role": "r", "jwt": token})))).await;
    assert!(logins.iter().all(|login| login.status == 200), "{}", logins[0].text);
    assert_eq!(world.provider.lock().count("discovery/keys"), 2);
}

async fn group_overage_is_reported(world: &World) {
    world.role(json!({"bound_group_ids": "g1"})).await;
    world.with(json!({"_claim_names": {"groups": "src1"}})).await.assert_error_has(403, "overage");
}

async fn too_long_token_is_rejected(world: &World) {
    for octets in [65 << 10, 1 << 20] {
        let jwt = world.provider.mint(json!({"padding": "x".repeat(octets)}));
        world.login(json!({"role": "r", "jwt": jwt})).await.assert_error_begins(400, "jwt: ");
    }
    assert!(world.provider.lock().asked.is_empty());
}

async fn token_without_principal_is_rejected(world: &World) {
    for oid in [json!(null), json!("")] {
        world.with(json!({ "oid": oid })).await.assert_error(403, "token has no oid");
    }
}
