//! Tests of batch tokens.

use super::*;

#[tokio::test]
async fn batch_token_cannot_be_renewed_revoked_or_have_children() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let (auth, _) = f.create(&parent, true, json!({"type": "batch", "policies": ["web"], "ttl": "1h"})).await.unwrap();
    let token = auth["client_token"].as_str().unwrap();
    assert!(token.starts_with("b."));
    for (name, want) in [
        ("accessor", json!("")),
        ("renewable", json!(false)),
        ("token_type", json!("batch")),
        ("orphan", json!(false)),
        ("lease_duration", json!(3600)),
        ("policies", json!(["default", "web"])),
    ] {
        assert_eq!(auth[name], want, "{name}");
    }
    let stored = f.store.all_tokens().await.len();
    let caller = f.caller(token).await;
    assert!(caller.is_batch() && caller.accessor.is_empty() && !caller.recorded_as.is_empty());
    assert!(f.auth.decide(&caller, Operation::Update, "pki/issue/web".into(), None).allowed);
    let text = f.create_error(token, true, json!({})).await;
    assert_eq!(text, "batch tokens cannot create more tokens");
    assert_eq!(f.renew(token, 0).await.unwrap_err(), "batch tokens cannot be renewed");
    assert_eq!(
        f.auth.renew_self(&caller, token, None).await.map(drop).unwrap_err().text(),
        "batch tokens cannot be renewed"
    );
    assert_eq!(f.auth.revoke(token).await.unwrap_err().text(), "batch tokens cannot be revoked");
    assert_eq!(f.store.all_tokens().await.len(), stored);
    let shown = f.auth.lookup(token).await.unwrap();
    assert_eq!(shown, f.auth.lookup_self(&caller, token).await.unwrap());
    for (name, want) in [
        ("id", json!(token)),
        ("accessor", json!("")),
        ("type", json!("batch")),
        ("ttl", json!(3600)),
        ("expire_time", json!("2030-01-01T01:00:00Z")),
        ("num_uses", json!(0)),
        ("renewable", json!(false)),
    ] {
        assert_eq!(shown[name], want, "{name}");
    }
    assert!(f.auth.revoke(&parent).await.unwrap());
    assert!(f.is_denied(token).await, "it ends with its parent, at once");
    assert!(f.auth.admit(caller, None).await.is_err());
    assert_eq!(f.auth.lookup(token).await.unwrap_err().text(), "bad token");
    assert!(!f.auth.revoke(token).await.unwrap());
}

#[tokio::test]
async fn batch_token_ends_at_expiry_and_orphan_only_then() {
    let f = Fixture::new().await;
    let parent = f.token(&f.root, json!({"policies": ["admin"]})).await;
    let body = json!({"type": "batch", "policies": ["web"], "ttl": "1h", "no_parent": true});
    let token = f.token(&parent, body).await;
    f.auth.revoke(&parent).await.unwrap();
    f.advance(3599.0);
    assert_eq!(f.caller(&token).await.lease_owner(), None);
    f.advance(1.0);
    assert!(f.is_denied(&token).await);
}

#[tokio::test]
async fn batch_token_accepts_unset_fields_and_refuses_others() {
    let f = Fixture::new().await;
    let body = json!({"type": "batch", "renewable": true, "explicit_max_ttl": "0s", "period": "0s", "num_uses": 0,
        "entity_alias": "", "policies": ["web"]});
    let (auth, _) = f.create(&f.root, true, body).await.unwrap();
    assert_eq!(auth["renewable"], json!(false));
    for (body, field) in [
        (json!({"num_uses": 3}), "num_uses"),
        (json!({"period": "1h"}), "period"),
        (json!({"explicit_max_ttl": "5m"}), "explicit_max_ttl"),
    ] {
        let mut body = body;
        body["type"] = json!("batch");
        body["policies"] = json!(["web"]);
        assert_eq!(f.create_error(&f.root, true, body).await, format!("batch tokens cannot have \"{field}\" set"));
    }
    let text = f.create_error(&f.root, true, json!({"type": "batch"})).await;
    assert_eq!(text, "batch tokens cannot be root tokens");
    let meta: serde_json::Map<_, _> = (0..60).map(|n| (format!("k{n}"), json!("v".repeat(60)))).collect();
    let policies: Vec<String> = (0..200).map(|n| format!("{n}{}", "p".repeat(100))).collect();
    let text = f.create_error(&f.root, true, json!({"type": "batch", "policies": policies, "meta": meta})).await;
    assert!(text.contains("too long for a batch token"), "{text}");
}

#[tokio::test]
async fn batch_token_not_sealed_here_is_refused() {
    let f = Fixture::new().await;
    for token in ["b.", "b.AAAA", "b.%%", &format!("b.{}", "A".repeat(20_000))] {
        assert!(f.is_denied(token).await, "{token}");
        assert_eq!(f.auth.lookup(token).await.unwrap_err().text(), "bad token");
        assert_eq!(f.renew(token, 0).await.unwrap_err(), "token not found");
        assert!(f.auth.caller_by_token(token).await.unwrap().is_none());
    }
    assert!(f.auth.root_token(Some("b.mine"), "dev").await.is_err());
}
