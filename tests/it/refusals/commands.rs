//! Errors of the client commands when the server rejects them or speaks another protocol.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::process::{dev, refused, signet};
use crate::serve::Site;

#[test]
fn file_that_cannot_be_renewed_is_reported_once() {
    let mut command = signet();
    let text = refused(command.args(["renew", "/nonexistent.pem"]).env("SIGNET_TOKEN", "hunter2"));
    assert_eq!(text.trim_end(), "signet: FILE: file does not exist: /nonexistent.pem");
}

fn status(address: &str) -> Command {
    let mut command = signet();
    command.args(["status", "--patience", "0s"]).env("SIGNET_ADDR", address).env("SIGNET_TOKEN", "hunter2");
    command
}

#[test]
fn client_errors_for_tls_server_name_protocol_and_trust() {
    let site = Site::new().with_tls("0x1001");
    let token = site.init();
    let served = site.serve();
    let plain = served.url("").replace("https://", "http://");
    let text = refused(&mut status(&plain));
    assert!(text.contains("status 400: \"this port speaks TLS: use https://\""), "{text}");
    let text = refused(&mut status(&served.url("")));
    assert!(text.contains("UnknownIssuer; set SIGNET_CACERT to the file of the authority to trust"), "{text}");
    let mut empty = status(&served.url(""));
    empty.envs([("SIGNET_CACERT", ""), ("SIGNET_TOKEN_FILE", "")]);
    assert!(refused(&mut empty).contains("UnknownIssuer"), "an empty variable is none");

    // Neither a file without certificates nor a missing file counts as no CA file.
    std::fs::write(site.path("empty.pem"), "no certificate\n").unwrap();
    for (name, rule) in
        [("empty.pem", "empty.pem: must contain PEM certificates"), ("absent.pem", "file does not exist: ")]
    {
        let text = refused(status(&served.url("")).env("SIGNET_CACERT", site.path(name)));
        assert!(text.contains("SIGNET_CACERT: ") && text.contains(rule) && text.contains(name), "{text}");
    }
    let trusting = |token: &str| {
        let mut command = status(&served.url(""));
        command.env("SIGNET_CACERT", site.path("ca.pem")).env("SIGNET_TOKEN", token);
        command
    };
    assert!(trusting(&token).output().unwrap().status.success());

    // An unknown token: the error names its source and how to get another.
    let text = refused(&mut trusting("hunter2"));
    let ended = "permission denied (the token is not known to the server, has expired, or is bound to other networks; \
                 the token is from";
    assert!(text.contains(&format!("{ended} SIGNET_TOKEN)")), "{text}");
    assert!(text.contains("signet operator new-root-token --config FILE"), "{text}");
    std::fs::write(site.path("token"), "hunter2").unwrap();
    let text = refused(trusting("").arg("--token-file").arg(site.path("token")));
    assert!(text.contains(&format!("{ended} {})", site.path("token").display())), "{text}");
    served.terminate();
}

#[actix_web::test]
async fn client_errors_for_plain_server_and_role_name_the_fix() {
    let dev = dev(&[]);
    let text = refused(&mut status(&dev.address.replace("http://", "https://")));
    assert!(text.contains("InvalidContentType; if that port speaks plain HTTP, SIGNET_ADDR must begin with"), "{text}");

    let role = json!({ "allowed_domains": "example.test", "allow_subdomains": true, "key_type": "ec" });
    assert_eq!(dev.client().post("pki/roles/narrow", role).await.status, 200);
    let folder = tempfile::tempdir().unwrap();
    let issue = |role: &str, token: &str| {
        let mut command = signet();
        command.args(["issue", "a.other.test", "--role", role]).current_dir(folder.path());
        command.env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", token);
        command
    };
    let text = refused(&mut issue("narrow", &dev.token));
    assert!(text.contains("common name a.other.test not allowed by this role (GET /v1/pki/roles/NAME"), "{text}");
    assert!(text.contains("allowed_domains"), "{text}");
    let text = refused(&mut issue("absent", &dev.token));
    assert!(text.contains("unknown role: absent (GET /v1/pki/roles?list=true"), "{text}");
    std::fs::write(folder.path().join("token"), "hunter2").unwrap();
    let text = refused(issue("narrow", "").args(["--token-file", "token"]));
    assert!(text.contains("(the token is not known to the server") && text.contains("is from token)"), "{text}");
    // A valid token: the error names the deciding rule, as explained by the server.
    let client = dev.client();
    let policy = "path \"pki/sign/narrow\" { capabilities = [\"update\"] allowed_parameters = { \"ttl\" = [] } }";
    assert_eq!(client.post("sys/policies/acl/ttl-only", json!({ "policy": policy })).await.status, 204);
    for (policy, reason) in [
        ("default", "no rule of the token's policies matches the path: see signet explain - POST pki/sign/narrow"),
        ("ttl-only", "the rule grants update, if the request's parameters satisfy the rule: see signet explain"),
    ] {
        let made = client.post("auth/token/create", json!({ "policies": [policy] })).await.body["auth"].clone();
        let token = made["client_token"].as_str().unwrap().to_owned();
        let text = refused(&mut issue("narrow", &token));
        assert!(text.contains(reason), "{text}");
        let explained = |parameter: &str| {
            let mut command = signet();
            command.args(["explain", "-", "POST", "pki/sign/narrow", parameter]).env("SIGNET_ADDR", &dev.address);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        if policy == "ttl-only" {
            assert!(explained("ttl=1h").starts_with("allowed: the rule grants update\n"), "{}", explained("ttl=1h"));
            let denied = "denied: the rule grants update, but not with these parameters: allowed_parameters: csr or its \
                          value is not allowed\n";
            assert!(explained("csr=x").starts_with(denied), "{}", explained("csr=x"));
        }
    }
    dev.terminate();
}
