//! Tests of tokens that logins create.

use super::*;
use crate::auth::mounts::{Mount, MountKind};

impl Fixture {
    /// Mounts an authentication method with the settings `config`.
    async fn enable_method(&self, config: Value) -> Arc<Mount> {
        let body = json!({"type": MountKind::AppRole.name(), "config": config});
        self.auth.auth_enable("team/app", &fields(body), None).await.unwrap()
    }

    async fn log_in(&self, mount: &Arc<Mount>, terms: Value) -> Result<(Value, Warnings)> {
        let terms = TokenTerms::default().merged(&fields(terms))?;
        let login = AuthenticatedLogin {
            mount: Arc::clone(mount),
            role: "web".to_owned(),
            alias: None,
            display_name: "box".to_owned(),
            meta: [("role_name".to_owned(), "web".to_owned())].into(),
            terms,
            address: Some("192.0.2.7".parse().unwrap()),
            consumed_use: None,
        };
        self.auth.log_in(login).await.map(rendered)
    }
}

#[tokio::test]
async fn login_token_has_settings_of_role_and_mount() {
    let f = Fixture::new().await;
    let mount = f.enable_method(json!({"default_lease_ttl": "2h", "max_lease_ttl": "10h"})).await;
    let (auth, _) = f.log_in(&mount, json!({"token_policies": "web"})).await.unwrap();
    for (name, want) in [
        ("policies", json!(["default", "web"])),
        ("lease_duration", json!(7200)),
        ("renewable", json!(true)),
        ("orphan", json!(true)),
        ("token_type", json!("service")),
        ("metadata", json!({"role_name": "web"})),
    ] {
        assert_eq!(auth[name], want, "{name}");
    }
    let shown = f.auth.lookup(auth["client_token"].as_str().unwrap()).await.unwrap();
    assert_eq!((&shown["path"], &shown["display_name"]), (&json!("auth/team/app/login"), &json!("team-app-box")));
    let terms = json!({"token_ttl": "9h", "token_max_ttl": "3h", "token_no_default_policy": true,
        "token_num_uses": 2, "token_policies": ["web"]});
    assert_eq!(f.log_in(&mount, terms).await.unwrap_err().text(), "ttl should not be greater than max_ttl");
    let terms = json!({"token_ttl": "20h", "token_no_default_policy": true, "token_num_uses": 2});
    let (auth, warnings) = f.log_in(&mount, terms).await.unwrap();
    assert_eq!((&auth["lease_duration"], &auth["num_uses"]), (&json!(36_000), &json!(2)));
    assert_eq!(auth["policies"], json!([]));
    let want = "TTL of \"20h\" exceeded the effective max_ttl of \"10h\"; TTL value is capped accordingly";
    assert_eq!(*warnings, [want]);
}

#[tokio::test]
async fn login_token_is_bound_to_networks_or_login_address() {
    let f = Fixture::new().await;
    let mount = f.enable_method(json!({})).await;
    let networks = async |terms| {
        let (auth, _) = f.log_in(&mount, terms).await?;
        let shown = f.auth.lookup(auth["client_token"].as_str().unwrap()).await.unwrap();
        Ok::<_, Error>(shown["bound_cidrs"].clone())
    };
    assert_eq!(networks(json!({"token_bound_cidrs": "192.0.2.0/24"})).await.unwrap(), json!(["192.0.2.0/24"]));
    assert_eq!(networks(json!({"token_strictly_bind_ip": true})).await.unwrap(), json!(["192.0.2.7"]));
    let elsewhere = networks(json!({"token_bound_cidrs": "10.0.0.0/8"})).await.unwrap_err();
    assert_eq!((elsewhere.kind(), elsewhere.text()), (Kind::Forbidden, DENIED));
}

#[tokio::test]
async fn token_type_of_mount_overrides_that_of_role() {
    let f = Fixture::new().await;
    let mount = f.enable_method(json!({})).await;
    for (tune, role, want) in [
        ("", "default", "service"),
        ("", "batch", "batch"),
        ("default-batch", "default", "batch"),
        ("default-batch", "service", "service"),
        ("default-service", "batch", "batch"),
        ("service", "batch", "service"),
        ("batch", "service", "batch"),
    ] {
        f.auth.mount_tune("auth/team/app", &fields(json!({"token_type": tune}))).await.unwrap();
        let mount = Arc::clone(f.auth.mounts().by_id(mount.id).unwrap());
        let (auth, _) = f.log_in(&mount, json!({"token_type": role})).await.unwrap();
        assert_eq!(auth["token_type"], want, "{tune} {role}");
        assert_eq!(auth["renewable"], json!(want == "service"));
    }
    let mount = Arc::clone(f.auth.mounts().by_id(mount.id).unwrap());
    let refused = f.log_in(&mount, json!({"token_num_uses": 2})).await.unwrap_err();
    assert!(refused.text().contains("limited use count"), "{}", refused.text());
}

#[tokio::test]
async fn disabling_a_method_ends_its_tokens_and_their_children() {
    let f = Fixture::new().await;
    let mount = f.enable_method(json!({})).await;
    let (auth, _) = f.log_in(&mount, json!({"token_policies": "admin"})).await.unwrap();
    let token = auth["client_token"].as_str().unwrap();
    let (batch, _) = f.log_in(&mount, json!({"token_type": "batch"})).await.unwrap();
    let child = f.token(token, json!({})).await;
    let orphan = f.token(token, json!({"no_parent": true})).await;
    let tokens = [token, batch["client_token"].as_str().unwrap(), &child];
    for token in tokens {
        f.caller(token).await;
    }
    f.auth.auth_disable("team/app").await.unwrap();
    for token in tokens {
        assert!(f.is_denied(token).await);
    }
    f.caller(&orphan).await;
}

#[tokio::test]
async fn login_during_disabling_of_its_method_fails() {
    let f = Fixture::new().await;
    let mount = f.enable_method(json!({})).await;
    f.store.commit(vec![AuthWrite::MountDelete(mount.id)]).await.unwrap();
    assert_eq!(f.log_in(&mount, json!({})).await.map(drop).unwrap_err().kind(), Kind::NotFound);
    assert!(f.store.all_tokens().await.iter().all(|row| row.mount.is_none()));
}
