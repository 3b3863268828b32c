//! Pods of a cluster and jobs of a build service log in and get certificates.

use serde_json::{Value, json};

use super::{Bed, auth};
use crate::support::{App, Client};

/// Adds an authority with a role for names below `test`, and a policy for the role.
async fn bed() -> Bed {
    let bed = Bed::bare(App::builder()).await;
    let client = &bed.app.client;
    let root = json!({"common_name": "Root", "key_type": "ec"});
    assert_eq!(client.post("pki/root/generate/internal", root).await.status, 200);
    let role = json!({"allowed_domains": "test", "allow_subdomains": true, "key_type": "ec", "ttl": "1h"});
    assert_eq!(client.post("pki/roles/web", role).await.status, 200);
    bed.app.policy("web", "path \"pki/issue/web\" { capabilities = [\"update\"] }").await;
    bed
}

async fn gets_a_certificate(bed: &Bed, role: &str, token: &str) -> (Value, Client) {
    let answer = bed.log_in(role, token).await;
    let own = bed.app.client.holder(&answer);
    let issued = own.post("pki/issue/web", json!({"common_name": "a.test"})).await.assert_status(200);
    assert!(issued.body["data"]["certificate"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    own.get("pki/roles/web").await.assert_denied();
    (auth(&answer).clone(), own)
}

#[actix_web::test]
async fn pod_gets_a_certificate_with_its_service_account_token() {
    let bed = bed().await;
    // In clusters, the key set has another address than the issuer.
    bed.configure(json!({"jwks_url": format!("{}/keys", bed.issuer.url), "bound_issuer": bed.issuer.url})).await;
    let role = json!({
        "bound_audiences": "https://signet.test",
        "bound_claims": {
            "/kubernetes.io/namespace": "web",
            "/kubernetes.io/serviceaccount/name": ["builder", "deployer"],
        },
        "claim_mappings": {"/kubernetes.io/namespace": "namespace", "/kubernetes.io/pod/name": "pod"},
        "token_policies": "web", "token_ttl": "10m",
    });
    bed.role("pods", role).await;
    let claims = |namespace: &str, account: &str| {
        json!({
            "aud": ["https://signet.test"],
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "jti": "0c3b2f8e-6f0c-4d5e-9a57-3f0d4f0f2d11",
            "kubernetes.io": {
                "namespace": namespace,
                "node": {"name": "node-1", "uid": "b9c1"},
                "pod": {"name": "build-0", "uid": "5e0c"},
                "serviceaccount": {"name": account, "uid": "14ee3fa4"},
                "warnafter": 1_900_000_000,
            },
        })
    };
    let (auth, own) = gets_a_certificate(&bed, "pods", &bed.issuer.token(claims("web", "builder"))).await;
    assert_eq!(auth["metadata"], json!({"role": "pods", "namespace": "web", "pod": "build-0"}));
    let name = own.get("auth/token/lookup-self").await.body["data"]["display_name"].clone();
    assert_eq!(name, json!("jwt-system:serviceaccount:web:builder"));
    for (namespace, account) in [("web2", "builder"), ("web", "default"), ("", "builder")] {
        assert_eq!(bed.log_in("pods", &bed.issuer.token(claims(namespace, account))).await.status, 403);
    }
    bed.app.stop().await;
}

#[actix_web::test]
async fn build_job_gets_a_certificate_with_its_identity_token() {
    let bed = bed().await;
    bed.configure(json!({"oidc_discovery_url": bed.issuer.url})).await;
    let role = json!({
        "bound_audiences": ["https://signet.test"],
        "bound_claims_type": "glob",
        "bound_claims": {"sub": "repo:acme/*:ref:refs/heads/main", "repository_owner_id": "1234"},
        "claim_mappings": {"repository": "repository", "run_id": "run", "environment": "environment"},
        "token_policies": "web", "token_num_uses": 2,
    });
    bed.role("builds", role).await;
    let claims = |repository: &str, branch: &str, owner: Value| {
        json!({
            "aud": "https://signet.test",
            "sub": format!("repo:{repository}:ref:refs/heads/{branch}"),
            "repository": repository,
            "repository_owner": "acme",
            "repository_owner_id": owner,
            "ref": format!("refs/heads/{branch}"),
            "ref_type": "branch",
            "ref_protected": "true",
            "run_id": "9876543210",
            "run_attempt": "1",
            "actor": "somebody",
            "event_name": "push",
            "workflow": "release",
            "job_workflow_ref": format!("{repository}/.github/workflows/release.yml@refs/heads/{branch}"),
            "runner_environment": "github-hosted",
        })
    };
    let answer = bed.log_in("builds", &bed.issuer.token(claims("acme/app", "main", json!("1234")))).await;
    assert_eq!(auth(&answer)["num_uses"], json!(2));
    let want = json!({"role": "builds", "repository": "acme/app", "run": "9876543210"});
    assert_eq!(auth(&answer)["metadata"], want);
    gets_a_certificate(&bed, "builds", &bed.issuer.token(claims("acme/app", "main", json!("1234")))).await;
    for other in [
        claims("acme/app", "feature", json!("1234")),
        claims("acme2/app", "main", json!("1234")),
        claims("acme/app", "main", json!("12345")),
        claims("acme/app", "main", json!(1234)),
        claims("acme/app", "main:x", json!("1234")),
    ] {
        assert_eq!(bed.log_in("builds", &bed.issuer.token(other.clone())).await.status, 403, "{other}");
    }
    let role = json!({
        "bound_audiences": "https://signet.test",
        "bound_claims": {"project_path": ["group/app", "group/lib"], "ref_type": "branch", "ref_protected": "true"},
        "claim_mappings": {"project_path": "project", "pipeline_id": "pipeline"},
        "token_policies": "web",
    });
    bed.role("pipelines", role).await;
    let claims = |project: &str, protected: Value| {
        json!({
            "aud": "https://signet.test",
            "sub": format!("project_path:{project}:ref_type:branch:ref:main"),
            "namespace_id": "72", "namespace_path": "group", "project_id": "20", "project_path": project,
            "user_id": "1", "user_login": "somebody", "pipeline_id": "574", "job_id": "302",
            "ref": "main", "ref_type": "branch", "ref_protected": protected, "groups_direct": ["group"],
        })
    };
    let (auth, _) = gets_a_certificate(&bed, "pipelines", &bed.issuer.token(claims("group/app", json!("true")))).await;
    assert_eq!(auth["metadata"], json!({"role": "pipelines", "project": "group/app", "pipeline": "574"}));
    for other in
        [claims("group/other", json!("true")), claims("group/app", json!("false")), claims("group/app", json!(true))]
    {
        assert_eq!(bed.log_in("pipelines", &bed.issuer.token(other)).await.status, 403);
    }
    bed.app.stop().await;
}
