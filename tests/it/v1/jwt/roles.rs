//! Roles: their fields, and their requirements for tokens.

use serde_json::{Value, json};

use super::Bed;
use crate::support::{App, tests_on, with};

tests_on!(
    bare: Bed::bare(App::builder()) =>
        a_role_is_written_merged_read_listed_and_deleted,
        a_role_that_breaks_a_rule_is_refused_with_the_field;
    configured: Bed::start() =>
        bound_claims_must_match,
        user_claim_must_be_a_non_empty_string,
        max_age_requires_recent_auth_time;
);

async fn refused(bed: &Bed, role: Value, text: &str) {
    let answer = bed.app.client.post("auth/jwt/role/wrong", role.clone()).await;
    assert_eq!((answer.status, answer.error()), (400, text), "{role}: {}", answer.text);
}

async fn a_role_is_written_merged_read_listed_and_deleted(bed: &Bed) {
    let client = &bed.app.client;
    assert_eq!(client.list("auth/jwt/role").await.status, 404);
    bed.role("CI", json!({"bound_audiences": "a, b", "ttl": "20m", "clock_skew_leeway": "-1", "max_age": "1h"})).await;
    let more = json!({"bound_claims": {"team": ["x", 7, true]}, "claim_mappings": {"team": "crew"}, "token_ttl": 600,
        "expiration_leeway": "30s", "groups_claim": "groups"});
    bed.role("ci", more).await;
    let want = json!({
        "role_type": "jwt", "expiration_leeway": 30, "not_before_leeway": 0, "clock_skew_leeway": -1,
        "bound_audiences": ["a", "b"], "bound_subject": "", "bound_claims_type": "string",
        "bound_claims": {"team": ["x", 7, true]}, "claim_mappings": {"team": "crew"}, "user_claim": "sub",
        "user_claim_json_pointer": false, "groups_claim": "groups", "max_age": 3600, "oauth2_metadata": [],
        "oidc_scopes": [], "allowed_redirect_uris": [], "callback_mode": "client", "verbose_oidc_logging": false,
        "token_policies_template_claims": false, "oidc_disable_confirmation": false,
        "token_ttl": 600, "token_max_ttl": 0, "token_explicit_max_ttl": 0, "token_period": 0, "token_policies": [],
        "token_bound_cidrs": [], "token_num_uses": 0, "token_no_default_policy": false, "token_type": "default",
        "token_strictly_bind_ip": false,
    });
    assert_eq!(client.get("auth/jwt/role/Ci").await.body["data"], want);
    let clears = json!({"bound_audiences": "", "bound_claims": {}, "bound_subject": "x"});
    bed.role("ci", clears).await;
    let shown = client.get("auth/jwt/role/ci").await.body["data"].clone();
    assert_eq!((&shown["bound_audiences"], &shown["bound_claims"]), (&json!([]), &json!({})));
    bed.role("abc", json!({"bound_subject": "x"})).await;
    assert_eq!(client.list("auth/jwt/role").await.body["data"]["keys"], json!(["abc", "ci"]));
    for _ in 0..2 {
        assert_eq!(client.delete("auth/jwt/role/CI").await.status, 204);
    }
    assert_eq!(client.get("auth/jwt/role/ci").await.text, "{\"errors\":[]}");
}

async fn a_role_that_breaks_a_rule_is_refused_with_the_field(bed: &Bed) {
    let bound = json!({"user_claim": "sub", "bound_subject": "x"});
    let bounded = |more: Value| with(bound.clone(), more);
    let open = "must have at least one bound constraint when creating/updating a role";
    refused(bed, json!({"bound_subject": "x"}), "a user claim must be defined on the role").await;
    refused(bed, json!({"user_claim": "sub"}), open).await;
    refused(bed, json!({"user_claim": "sub", "bound_claims": {}, "bound_audiences": ""}), open).await;
    let blank = "bound_claims: a string must not be blank or longer than 1024 bytes";
    let reserved = "metadata key \"role\" is reserved and may not be a mapping destination";
    let long =
        "claim names, audiences, redirect URIs, bound_subject and metadata keys: each must have at most 1024 bytes";
    for (more, text) in [
        (json!({"role_type": "oidc"}), "role_type: 'oidc' is not supported, only 'jwt'"),
        (json!({"role_type": "JWT"}), "invalid 'role_type': must be jwt"),
        (json!({"bound_claims_type": "regex"}), "invalid 'bound_claims_type': must be string or glob"),
        (json!({"bound_claims": {"a": ""}}), blank),
        (json!({"bound_claims": {"a": ["x", " "]}}), blank),
        (json!({"bound_claims": {"a": []}}), "bound_claims: a claim must be bound to 1 to 100 values"),
        (json!({"bound_claims": {"a": null}}), "bound_claims: a value must be a string, a number or a boolean"),
        (json!({"bound_claims": {"a": {"b": 1}}}), "bound_claims: a value must be a string, a number or a boolean"),
        (json!({"bound_claims": {"": "x"}}), "bound_claims: claim names must have 1 to 1024 bytes"),
        (json!({"bound_claims": {"a": 7}, "bound_claims_type": "glob"}), "bound_claims: patterns must be strings"),
        (json!({"bound_claims": "{"}), "bound_claims: must be a JSON object"),
        (json!({"claim_mappings": {"a": "role"}}), reserved),
        (json!({"claim_mappings": {"a": "x", "b": "x"}}), "multiple keys are mapped to metadata key \"x\""),
        (json!({"token_ttl": "2h", "token_max_ttl": "1h"}), "ttl should not be greater than max_ttl"),
        (json!({"token_policies": "root"}), "auth methods cannot create root tokens"),
        (json!({"allowed_redirect_uris": "x".repeat(1025)}), long),
    ] {
        refused(bed, bounded(more), text).await;
    }
    for (field, value) in [
        ("oidc_scopes", json!(["profile"])),
        ("callback_mode", json!("device")),
        ("verbose_oidc_logging", json!(true)),
        ("token_policies_template_claims", json!(true)),
    ] {
        let text = format!("{field}: not supported; only logins with a JWT are supported");
        refused(bed, bounded(json!({ field: value })), &text).await;
    }
    for (field, value) in [("clock_skew_leeway", json!("x")), ("max_age", json!(-1)), ("user_claim", json!([]))] {
        let role = bounded(json!({ field: value }));
        bed.app.client.post("auth/jwt/role/wrong", role).await.assert_status(400);
    }
    assert_eq!(bed.app.client.list("auth/jwt/role").await.status, 404);
    // Clients send neutral values of unsupported fields.
    let neutral = json!({"oidc_scopes": [], "allowed_redirect_uris": "", "callback_mode": "client", "poll_interval": 0,
        "verbose_oidc_logging": false, "oauth2_metadata": null, "bound_claims": "{\"a\":\"b\"}"});
    bed.role("neutral", bounded(neutral)).await;
    // Redirect URIs are accepted: some clients send them for every role.
    let redirects = json!({"allowed_redirect_uris": "https://a.test/cb,https://b.test/cb"});
    bed.role("redirects", bounded(redirects)).await;
    let read = bed.app.client.get("auth/jwt/role/redirects").await;
    assert_eq!(read.body["data"]["allowed_redirect_uris"], json!(["https://a.test/cb", "https://b.test/cb"]));
}

async fn bound_claims_must_match(bed: &Bed) {
    let logs_in = async |bound: Value, claims: Value| {
        bed.role("ci", json!({"bound_claims": bound})).await;
        let answer = bed.with_claims(claims.clone()).await;
        assert!([200, 403].contains(&answer.status), "{}", answer.text);
        answer.status == 200
    };
    for (bound, claims) in [
        (json!({"a": "x"}), json!({"a": "x"})),
        (json!({"a": ["w", "x"]}), json!({"a": ["x", "y"]})),
        (json!({"a": 7}), json!({"a": 7})),
        (json!({"a": true, "b": "x"}), json!({"a": true, "b": "x"})),
        (json!({"/a/b~1c/1": "x"}), json!({"a": {"b/c": ["w", "x"]}})),
        (json!({"a.b": "x"}), json!({"a.b": "x"})),
    ] {
        assert!(logs_in(bound.clone(), claims.clone()).await, "{bound} {claims}");
    }
    for (bound, claims) in [
        (json!({"a": "x"}), json!({})),
        (json!({"a": "x"}), json!({"a": "X"})),
        (json!({"a": "x", "b": "y"}), json!({"a": "x"})),
        (json!({"a": "7"}), json!({"a": 7})),
        (json!({"a": 7}), json!({"a": "7"})),
        (json!({"a": 7}), json!({"a": 7.5})),
        (json!({"a": "true"}), json!({"a": true})),
        (json!({"a": "null"}), json!({"a": [null]})),
        (json!({"a": "x*"}), json!({"a": "xy"})),
        (json!({"/a/b": "x"}), json!({"/a/b": "x"})),
        (json!({"a": "x"}), json!({"a": {"x": "x"}})),
    ] {
        assert!(!logs_in(bound.clone(), claims.clone()).await, "{bound} {claims}");
    }
    bed.role("ci", json!({"bound_claims_type": "glob", "bound_claims": {"a": ["x*", "*y"]}})).await;
    for (claim, status) in [
        (json!("x"), 200),
        (json!("xz"), 200),
        (json!(["q", "zy"]), 200),
        (json!("q"), 403),
        (json!(""), 403),
        (json!(7), 403),
    ] {
        assert_eq!(bed.with_claims(json!({"a": claim})).await.status, status, "{claim}");
    }
    bed.role("ci", json!({"bound_claims": {"a": "*"}})).await;
    for claim in [json!(""), json!(" "), json!(7), json!(false), json!([]), json!({})] {
        assert_eq!(bed.with_claims(json!({"a": claim})).await.status, 403, "{claim}");
    }
}

async fn user_claim_must_be_a_non_empty_string(bed: &Bed) {
    for (subject, reason) in [
        (json!(null), "claim \"sub\" not found in token"),
        (json!(7), "claim \"sub\" could not be converted to string"),
        (json!(""), "claim \"sub\" could not be converted to string"),
        (json!("  "), "claim \"sub\" could not be converted to string"),
        (json!("x".repeat(1025)), "claim \"sub\" could not be converted to string"),
    ] {
        bed.refuses("ci", &bed.issuer.token(json!({"aud": "signet", "sub": subject})), reason).await;
    }
    let role = json!({"user_claim": "/who/mail", "bound_audiences": "signet"});
    assert_eq!(bed.app.client.post("auth/jwt/role/mail", role.clone()).await.status, 204);
    let token = bed.issuer.token(json!({"aud": "signet", "who": {"mail": "a@b"}}));
    bed.refuses("mail", &token, "claim \"/who/mail\" not found in token").await;
    let pointer = json!({"user_claim_json_pointer": true});
    assert_eq!(bed.app.client.post("auth/jwt/role/mail", pointer).await.status, 204);
    let answer = bed.log_in("mail", &token).await;
    let own = bed.app.client.holder(&answer);
    assert_eq!(own.get("auth/token/lookup-self").await.body["data"]["display_name"], json!("jwt-a@b"));
    bed.role("ci", json!({"claim_mappings": {"team": "crew"}, "groups_claim": "/who/groups"})).await;
    for (more, reason) in [
        (json!({"team": 7, "who": {"groups": []}}), "error converting claim 'team' to string"),
        (json!({}), "\"/who/groups\" claim not found in token"),
        (json!({"who": {"groups": 7}}), "\"/who/groups\" claim could not be converted to string list"),
        (json!({"who": {"groups": ["a", 7]}}), "\"/who/groups\" claim could not be converted to string list"),
    ] {
        bed.refuses("ci", &bed.issuer.token(with(json!({"aud": "signet"}), more)), reason).await;
    }
    assert_eq!(bed.with_claims(json!({"who": {"groups": ["a", ""]}})).await.status, 200);
    assert_eq!(bed.with_claims(json!({"who": {"groups": "a"}})).await.status, 200);
}

async fn max_age_requires_recent_auth_time(bed: &Bed) {
    bed.role("ci", json!({"max_age": "1h"})).await;
    let now = crate::directory::now();
    for (asked, status) in [(json!(now - 3600), 200), (json!(now - 3670), 403), (json!(null), 403), (json!("1"), 403)] {
        assert_eq!(bed.with_claims(json!({"auth_time": asked})).await.status, status, "{asked}");
    }
}
