//! Clients that log in with a JWT, and the cost of verifying its signature alone.
//!
//! The server verifies with a configured key, so it contacts no other server. Every login creates a token, which is
//! stored before the response is sent.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::anchors;
use crate::drive::{RequestClass, ServerAccess};
use crate::environment::now;

const AUDIENCE: &str = "https://signet.example";

/// A JWT and the key that verifies it.
struct SignedJwt {
    token: String,
    pem: String,
    /// CPU microseconds of one verification while all cores verify.
    verify_us: f64,
}

/// Creates an authentication method with a role. Returns the clients that log in, and the CPU microseconds that the
/// verification of their JWT alone takes.
pub(crate) async fn prepare(admin: &ServerAccess<'_>, clients: usize) -> Result<(RequestClass, f64), String> {
    let signed = signed()?;
    let provisioner = admin.provisioner;
    let method = provisioner.fresh_name();
    provisioner.auth_method(&method, &json!({ "type": "jwt" })).await?;
    let config = json!({ "jwt_validation_pubkeys": [signed.pem] });
    provisioner.post(&format!("/v1/auth/{method}/config"), &config).await?;
    let role = json!({ "role_type": "jwt", "user_claim": "sub", "bound_audiences": AUDIENCE, "token_ttl": "1h",
        "bound_claims": { "/kubernetes.io/namespace": "web" }, "token_policies": provisioner.name() });
    provisioner.post(&format!("/v1/auth/{method}/role/load"), &role).await?;
    let body = json!({ "role": "load", "jwt": signed.token }).to_string();
    let path = format!("/v1/auth/{method}/login");
    let has_token = |answer: &Value| answer["auth"]["client_token"].is_string();
    Ok((RequestClass::post("login", clients, path, vec![Bytes::from(body)], has_token), signed.verify_us))
}

/// Creates a JWT like those of Kubernetes service accounts, with a new key.
fn signed() -> Result<SignedJwt, String> {
    let key = KeyPair::generate(KeySize::Rsa2048).map_err(|e| e.to_string())?;
    let spki: PublicKeyX509Der<'_> = key.public_key().as_der().map_err(|e| e.to_string())?;
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(spki.as_ref()));
    let now = now();
    let header = json!({ "alg": "RS256", "kid": "load" });
    let claims = json!({
        "iss": "https://cluster.example", "aud": [AUDIENCE], "sub": "system:serviceaccount:web:builder",
        "iat": now, "nbf": now, "exp": now + 86_400, "jti": "0c3b2f8e-6f0c-4d5e-9a57-3f0d4f0f2d11",
        "kubernetes.io": { "namespace": "web", "node": { "name": "node-1", "uid": "b9c1" },
            "pod": { "name": "build-0", "uid": "5e0c" }, "serviceaccount": { "name": "builder", "uid": "14ee" } },
    });
    let message = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature).map_err(|e| e.to_string())?;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verify_us = anchors::busy_micros(cores, 1000, || Ok(|| public.verify(message.as_bytes(), &signature)))?;
    public.verify(message.as_bytes(), &signature).map_err(|e| e.to_string())?;
    Ok(SignedJwt { token: format!("{message}.{}", URL_SAFE_NO_PAD.encode(&signature)), pem, verify_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jwt_has_three_parts_and_its_key_is_pem() {
        let signed = signed().unwrap();
        assert_eq!(signed.token.split('.').count(), 3);
        assert!(signed.pem.starts_with("-----BEGIN PUBLIC KEY-----\nMII") && signed.verify_us > 0.0);
    }
}
