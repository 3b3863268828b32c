//! Tests of tokens that can be used only from some addresses.

use std::net::IpAddr;

use super::*;

impl Fixture {
    async fn works_from(&self, token: &str, address: Option<&str>) -> bool {
        let address: Option<IpAddr> = address.map(|text| text.parse().unwrap());
        match self.auth.recognise(token, address).await {
            Ok(caller) => self.auth.admit(caller, address).await.is_ok(),
            Err(error) => {
                assert_eq!((error.kind(), error.text()), (Kind::Forbidden, DENIED));
                false
            }
        }
    }

    /// Creates a token with the policy `admin`, bound to 192.0.2.0/24.
    async fn create_bound_token(&self) -> String {
        let role = json!({"allowed_policies": ["admin"], "token_bound_cidrs": "192.0.2.0/24"});
        self.auth.token_role_write("bound", &fields(role)).await.unwrap();
        let (auth, _) = self.create_on(CreatePath::Role("bound"), &self.root, true, json!({})).await.unwrap();
        auth["client_token"].as_str().unwrap().to_owned()
    }

    /// Creates a token with a token that is bound to networks, and returns the networks of the new token.
    async fn networks_of_child(&self, path: CreatePath<'_>, parent: &str, sudo: bool, body: Value) -> Value {
        let caller = self.auth.recognise(parent, Some("192.0.2.1".parse().unwrap())).await.unwrap();
        let (auth, _) = self.auth.create_token(&caller, sudo, path, &fields(body)).await.map(rendered).unwrap();
        self.auth.lookup(auth["client_token"].as_str().unwrap()).await.unwrap()["bound_cidrs"].clone()
    }
}

#[tokio::test]
async fn bound_token_is_unknown_outside_its_networks() {
    let f = Fixture::new().await;
    let token = f.create_bound_token().await;
    for (address, works) in
        [(Some("192.0.2.77"), true), (Some("::ffff:192.0.2.7"), true), (Some("198.51.100.1"), false), (None, false)]
    {
        assert_eq!(f.works_from(&token, address).await, works, "{address:?}");
    }
    let batch = json!({"type": "batch"});
    let here = f.auth.recognise(&token, Some("192.0.2.1".parse().unwrap())).await.unwrap();
    let (auth, _) = f.auth.create_token(&here, false, CreatePath::Child, &fields(batch)).await.map(rendered).unwrap();
    let batch = auth["client_token"].as_str().unwrap();
    assert!(f.works_from(batch, Some("192.0.2.1")).await && !f.works_from(batch, Some("192.0.3.1")).await);
}

#[tokio::test]
async fn request_from_other_network_consumes_no_use() {
    let f = Fixture::new().await;
    let role = json!({"token_bound_cidrs": "192.0.2.0/24", "token_num_uses": 1});
    f.auth.token_role_write("once", &fields(role)).await.unwrap();
    let created = f.create_on(CreatePath::Role("once"), &f.root, true, json!({"policies": ["web"]})).await.unwrap();
    let token = created.0["client_token"].as_str().unwrap();
    assert!(!f.works_from(token, Some("192.0.3.1")).await);
    assert!(f.works_from(token, Some("192.0.2.1")).await && !f.works_from(token, Some("192.0.2.1")).await);
}

#[tokio::test]
async fn child_token_is_bound_like_its_parent_or_its_role() {
    let f = Fixture::new().await;
    let parent = f.create_bound_token().await;
    for (role, body) in [
        ("none", json!({})),
        ("own", json!({"token_bound_cidrs": "10.0.0.0/8,::1"})),
        ("orphans", json!({"orphan": true})),
    ] {
        f.auth.token_role_write(role, &fields(body)).await.unwrap();
    }
    let like_parent = json!(["192.0.2.0/24"]);
    for (path, sudo, body, want) in [
        (CreatePath::Child, false, json!({}), like_parent.clone()),
        (CreatePath::Child, true, json!({}), like_parent.clone()),
        (CreatePath::Child, false, json!({"type": "batch"}), like_parent.clone()),
        (CreatePath::Role("none"), false, json!({}), like_parent.clone()),
        (CreatePath::Role("own"), false, json!({}), json!(["10.0.0.0/8", "::1"])),
        (CreatePath::Orphan, false, json!({}), like_parent.clone()),
        (CreatePath::Role("orphans"), false, json!({}), like_parent),
        (CreatePath::Orphan, true, json!({}), Value::Null),
        (CreatePath::Child, true, json!({"no_parent": true}), Value::Null),
    ] {
        let found = f.networks_of_child(path, &parent, sudo, body.clone()).await;
        assert_eq!(found, want, "{path:?} {sudo} {body}");
    }
}

#[tokio::test]
async fn non_expiring_root_token_has_no_bound_networks() {
    let f = Fixture::new().await;
    let role = json!({"token_bound_cidrs": "192.0.2.0/24", "allowed_policies": ["root"]});
    f.auth.token_role_write("r", &fields(role)).await.unwrap();
    for (body, works) in [(json!({}), true), (json!({"ttl": "1h"}), false)] {
        let (auth, _) = f.create_on(CreatePath::Role("r"), &f.root, true, body).await.unwrap();
        let token = auth["client_token"].as_str().unwrap();
        assert_eq!(f.works_from(token, Some("203.0.113.1")).await, works);
    }
}
