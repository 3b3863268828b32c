//! Tests of authentication mounts on one store that several nodes share.

use std::sync::Arc;
use std::time::Duration;

use super::approle::AppRoleMethod;
use super::approle::role::AppRole;
use super::method_mount::{AnyMethodMount as _, MethodMount};
use crate::auth::Auth;
use crate::auth::store::AuthStore as _;
use crate::auth::tests::{TEST_MOUNT, TestStore};
use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Kind, Result, Warnings};
use crate::fields::Fields;
use crate::secret::Secret;

type Node = MethodMount<AppRoleMethod>;

async fn two_nodes() -> (Node, Node, Arc<TestStore>) {
    let store = TestStore::open(&Clock::system()).await;
    let node = || Node::new(TEST_MOUNT, store.clone()).unwrap();
    (node(), node(), store)
}

async fn write_role(node: &Node, name: &str, change: impl Fn(&mut AppRole)) -> Result<Warnings> {
    let merge = |stored: Option<&AppRole>| {
        let mut role = stored.cloned().unwrap_or_default();
        change(&mut role);
        Ok((role, Warnings::default()))
    };
    node.write_role(name, |_, stored| merge(stored)).await
}

fn secret_id_num_uses(node: &Node, name: &str) -> Option<u32> {
    node.view().roles().get(name).map(|role| role.secret_id_num_uses)
}

#[tokio::test]
async fn role_changes_of_two_nodes_are_merged() {
    let (a, b, _) = two_nodes().await;
    write_role(&a, "Web", |role| role.secret_id_num_uses = 1).await.unwrap();
    write_role(&b, "wEB", |role| role.secret_id_ttl = Duration::from_secs(60)).await.unwrap();
    write_role(&a, "web", |role| role.bind_secret_id = true).await.unwrap();
    let view = a.view();
    let role = view.roles().get("WEB").unwrap();
    assert_eq!((role.secret_id_num_uses, role.secret_id_ttl.as_secs()), (1, 60));
    assert_eq!(view.roles().names().collect::<Vec<_>>(), ["web"]);
}

#[tokio::test]
async fn role_unknown_to_this_node_is_deleted() {
    let (a, b, store) = two_nodes().await;
    write_role(&a, "web", |_| ()).await.unwrap();
    let number = a.role_number("web").unwrap();
    assert!(b.view().roles().get("web").is_none());
    assert!(b.delete_role("web").await.unwrap());
    assert!(!a.delete_role("web").await.unwrap(), "it is gone");
    assert!(a.view().roles().get("web").is_none());
    for kind in ["role", "role-id"] {
        assert!(store.documents_of(TEST_MOUNT, kind).await.unwrap().is_empty(), "{kind}");
    }
    assert!(!store.secret_id_role_exists(TEST_MOUNT, number).await.unwrap());
}

#[tokio::test]
async fn role_id_is_unique_across_nodes() {
    let (a, b, _) = two_nodes().await;
    write_role(&a, "one", |role| role.set_role_id("taken").unwrap()).await.unwrap();
    let refusal = write_role(&b, "other", |role| role.set_role_id("taken").unwrap()).await.unwrap_err();
    assert_eq!((refusal.kind(), refusal.text()), (Kind::Invalid, "role_id already in use"));
    write_role(&a, "one", |role| role.set_role_id("free").unwrap()).await.unwrap();
    write_role(&b, "other", |role| role.set_role_id("taken").unwrap()).await.unwrap();
    assert_eq!(
        (b.view().derived().role_name("taken"), b.view().derived().role_name("free")),
        (Some("other"), Some("one"))
    );
}

#[tokio::test]
async fn stored_roles_load_after_restart_and_none_after_close() {
    let (a, _, store) = two_nodes().await;
    write_role(&a, "web", |role| role.secret_id_num_uses = 3).await.unwrap();
    let again = Node::new(TEST_MOUNT, store.clone()).unwrap();
    again.reload().await.unwrap();
    assert_eq!(secret_id_num_uses(&again, "web"), Some(3));
    assert!(again.terms("web").is_some() && again.terms("other").is_none());
    let other_mount = Node::new(MountId(2), store.clone()).unwrap();
    other_mount.reload().await.unwrap();
    assert_eq!(secret_id_num_uses(&other_mount, "web"), None);
    again.close();
    assert_eq!(secret_id_num_uses(&again, "web"), None);
}

#[tokio::test]
async fn view_stays_during_an_outage_and_catches_up_afterwards() {
    let (a, b, store) = two_nodes().await;
    write_role(&a, "web", |role| role.secret_id_num_uses = 1).await.unwrap();
    b.reload().await.unwrap();
    store.set_unavailable(true);
    assert_eq!(write_role(&a, "web", |role| role.secret_id_num_uses = 2).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(secret_id_num_uses(&a, "web"), Some(1));
    assert_eq!(a.reload_after_unknown_write().await.unwrap_err().kind(), Kind::Unavailable);
    store.set_unavailable(false);
    write_role(&b, "web", |role| role.secret_id_num_uses = 3).await.unwrap();
    a.reload_after_unknown_write().await.unwrap();
    assert_eq!(secret_id_num_uses(&a, "web"), Some(3), "it was behind");
    write_role(&b, "web", |role| role.secret_id_num_uses = 4).await.unwrap();
    a.reload_after_unknown_write().await.unwrap();
    assert_eq!(secret_id_num_uses(&a, "web"), Some(3), "not behind any more, and left to the follower");
}

#[tokio::test]
async fn login_with_unknown_role_id_performs_the_same_lookups() {
    let (node, _, store) = two_nodes().await;
    write_role(&node, "web", |role| role.set_role_id("web-id").unwrap()).await.unwrap();
    let auth = Auth::open(store.clone(), Clock::system()).await.unwrap();
    let fields = Fields::parse(br#"{"type":"approle"}"#).unwrap();
    let mount = auth.auth_enable("approle", &fields, None).await.unwrap();
    let refusal = async |role_id: &str, secret_id: Option<&str>| {
        let before = store.calls("secret_id");
        let secret_id = secret_id.map(Secret::new);
        let refused =
            node.authenticate(mount.clone(), role_id, secret_id, None, Clock::system().now()).await.err().unwrap();
        (refused.text().to_owned(), store.calls("secret_id") - before)
    };
    let long = "x".repeat(5_000);
    for (secret_id, lookups) in [(Some("wrong"), 1), (Some(" "), 0), (Some(&long[..]), 0), (None, 0)] {
        let known = refusal("web-id", secret_id).await;
        assert_eq!(known.1, lookups, "{secret_id:?}");
        assert_eq!(refusal("nobody", secret_id).await, known, "{secret_id:?}");
    }
}
