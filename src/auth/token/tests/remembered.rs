//! Tests of callers that are remembered, and accepted while the store is unavailable.

use super::*;

#[actix_web::test]
async fn remembered_token_works_for_a_day_and_not_beyond_its_expiry() {
    let f = Fixture::new().await;
    let long = f.token(&f.root, json!({ "policies": ["web"], "ttl": "100h" })).await;
    let short = f.token(&f.root, json!({ "policies": ["web"], "ttl": "1h" })).await;
    assert!(f.auth.remembered_caller(&long, None).is_none(), "it was not remembered");
    for token in [&long, &short] {
        f.auth.remember_for_outage(f.caller(token).await.as_ref());
        assert!(f.auth.remembered_caller(token, None).is_some());
    }
    assert!(f.auth.remembered_caller("s.unknown", None).is_none());
    f.clock.advance(Duration::from_secs(3601));
    assert!(f.auth.remembered_caller(&long, None).is_some() && f.auth.remembered_caller(&short, None).is_none());
    f.clock.advance(Duration::from_secs(86_400));
    assert!(f.auth.remembered_caller(&long, None).is_none());
}

#[actix_web::test]
async fn remembered_token_is_dropped_by_any_local_change() {
    let f = Fixture::new().await;
    let token = f.token(&f.root, json!({ "policies": ["web"], "ttl": "100h" })).await;
    f.auth.remember_for_outage(f.caller(&token).await.as_ref());
    f.auth.policy_write("other", &fields(json!({ "policy": ADMIN }))).await.unwrap();
    assert!(f.auth.remembered_caller(&token, None).is_none(), "its policies may have changed");
    f.auth.remember_for_outage(f.caller(&token).await.as_ref());
    assert!(f.auth.remembered_caller(&token, None).is_some());
    let caller = f.caller(&token).await;
    f.auth.revoke(&token).await.unwrap();
    assert!(f.auth.remembered_caller(&token, None).is_none());
    f.auth.remember_for_outage(&caller);
    assert!(f.auth.remembered_caller(&token, None).is_none(), "the caller was read before the token ended");
}

#[actix_web::test]
async fn number_of_remembered_tokens_is_limited() {
    let f = Fixture::new().await;
    let few = f.token(&f.root, json!({ "policies": ["web"], "num_uses": 9 })).await;
    f.auth.remember_for_outage(f.caller(&few).await.as_ref());
    assert!(f.auth.remembered_caller(&few, None).is_none());
    let first = f.token(&f.root, json!({ "policies": ["web"] })).await;
    f.auth.remember_for_outage(f.caller(&first).await.as_ref());
    let many: Vec<String> =
        futures_util::future::join_all((0..600).map(|_| f.token(&f.root, json!({ "policies": ["web"] })))).await;
    for token in &many {
        f.auth.remember_for_outage(f.caller(token).await.as_ref());
    }
    let kept = many.iter().filter(|token| f.auth.remembered_caller(token, None).is_some()).count();
    assert!((16..=256).contains(&kept), "{kept}");
    assert!(f.auth.remembered_caller(&first, None).is_some(), "the first one stays");
}
