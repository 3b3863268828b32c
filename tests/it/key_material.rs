//! Checks in the source that private keys stay in secret types.

use crate::source::sources;

/// Body members that contain private keys.
const MEMBERS: [&str; 4] = ["pem_bundle", "p12", "service_client_cert_bundle", "private_key"];

/// Files that may encode a private key; the result is a secret.
const ENCODERS: [&str; 5] =
    ["keys/", "http/secrets/pki/rendering.rs", "pki/mount/issuer.rs", "cli/certify.rs", "server/renewal.rs"];

#[test]
fn private_keys_stay_in_secret_types_in_source() {
    for source in sources().iter().filter(|source| !source.path.starts_with("x509/")) {
        let path = &source.path;
        let code = &source.code;
        for member in MEMBERS {
            // They are taken out of a body, never read or copied.
            for reader in ["str", "text", "value", "strings", "list"] {
                assert!(!code.contains(&format!("{reader}(\"{member}\"")), "{path}: {reader} of {member}");
            }
        }
        for line in code.lines().filter(|line| line.contains("\"private_key\"")) {
            // The last one is a list of field names.
            let known = ["take_secret(", "add_secret(", "const ", "(\"private_key\", !", "    &[\""];
            assert!(known.iter().any(|way| line.contains(way)), "{path}: {line}");
        }
        let encodes = [".to_pkcs8()", ".to_traditional_form()"].iter().any(|call| code.contains(call));
        assert!(!encodes || ENCODERS.iter().any(|encoder| path.starts_with(encoder)), "{path}: encodes a key");
    }
    let code = |path: &str| sources().into_iter().find(|source| source.path == path).unwrap().code;
    for (path, secret) in [
        ("http/secrets/pki/rendering.rs", "key_format: PrivateKeyFormat) -> Result<Secret>"),
        ("http/secrets/pki/rendering.rs", "fn pem_bundle(key: &PrivateKey, text: &str) -> Result<Secret>"),
        ("http/secrets/json_object.rs", "fn finish(mut self) -> PartlySecret"),
        ("http/secrets/pki/rendering.rs", "in_chain: bool,\n) -> Result<PartlySecret>"),
        (
            "http/secrets/pki/generate.rs",
            "fn root_data(root: &GeneratedRoot, rendering: &CertificateRendering) -> Result<PartlySecret>",
        ),
        (
            "http/secrets/pki/generate.rs",
            "fn csr_data(csr: &GeneratedCsr, rendering: &CertificateRendering) -> Result<PartlySecret>",
        ),
        ("http/secrets/pki/import.rs", "fn take_required(field: &'static str, fields: &mut Fields) -> Result<Secret>"),
        ("pki/mount/settings/external_policy.rs", "stored client_bundle: Secret as"),
        ("server/renewal.rs", "fn encode_key(key: &Secret) -> Secret"),
        ("keys/pool/stock.rs", "ready: VecDeque<PrivateKey>,"),
        ("http/secrets/handler_response.rs", "Rendered(PartlySecret),"),
        ("auth/token/response.rs", "pub token: Secret,"),
        ("cli/certify.rs", "private_key: Secret,"),
        ("cli/certify.rs", "fn generate_key(key_type: &str, bits: i64) -> Result<(PrivateKey, Secret)>"),
    ] {
        assert!(code(path).contains(secret), "{path}: {secret}");
    }
}
