//! A SoftHSM token in the data folder, and the cost of its signatures without a server, compared with software
//! signatures.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, ObjectClass};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;

use crate::anchors;

/// Label of the token, and the PIN of its user and its security officer.
pub(crate) const TOKEN: &str = "signet-load";
pub(crate) const PIN: &str = "signet-load-pin";
/// Environment variable with the path of SoftHSM's settings.
const SOFTHSM_SETTINGS_VARIABLE: &str = "SOFTHSM2_CONF";
/// DER of a SHA-256 `DigestInfo` without its digest (RFC 8017 section 9.2).
const DIGEST_INFO: [u8; 19] =
    [0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20];
/// Signatures per block; nine blocks are measured.
const SIGNATURES_PER_BLOCK: u32 = 200;

/// The types of keys that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKeyType {
    P256,
    Rsa2048,
}

impl DeviceKeyType {
    /// Returns type and size as in requests.
    pub(crate) fn parameters(self) -> (&'static str, u32) {
        match self {
            Self::P256 => ("ec", 256),
            Self::Rsa2048 => ("rsa", 2048),
        }
    }

    /// Returns the name and label of the managed key.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::P256 => "load-p256",
            Self::Rsa2048 => "load-rsa-2048",
        }
    }
}

/// Creates the token in `data_dir` if it is missing, and executes this program again with SoftHSM's environment
/// variable set. The server inherits the variable, and the library in this process reads it as well. Returns `Ok` if it
/// is already set.
pub(crate) fn set_softhsm_environment(data_dir: &Path) -> Result<(), String> {
    let at = |e: std::io::Error| format!("the SoftHSM token in {}: {e}", data_dir.display());
    let folder = data_dir.join("softhsm");
    let tokens = folder.join("tokens");
    let settings = folder.join("softhsm2.conf");
    let is_set = |settings: &PathBuf| std::env::var_os(SOFTHSM_SETTINGS_VARIABLE).is_some_and(|set| set == *settings);
    if settings.canonicalize().is_ok_and(|settings| is_set(&settings)) {
        return Ok(());
    }
    let is_new = !tokens.exists();
    fs::create_dir_all(&tokens).map_err(at)?;
    let tokens = tokens.canonicalize().map_err(at)?;
    fs::write(&settings, format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display())).map_err(at)?;
    let settings = settings.canonicalize().map_err(at)?;
    if is_new {
        let mut tool = Command::new("softhsm2-util");
        tool.args(["--init-token", "--free", "--label", TOKEN, "--so-pin", PIN, "--pin", PIN]);
        let made =
            tool.env(SOFTHSM_SETTINGS_VARIABLE, &settings).output().map_err(|e| format!("softhsm2-util: {e}"))?;
        if !made.status.success() {
            return Err(format!("softhsm2-util: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
    }
    let program = std::env::current_exe().map_err(at)?;
    Err(at(Command::new(program).args(std::env::args_os().skip(1)).env(SOFTHSM_SETTINGS_VARIABLE, settings).exec()))
}

/// Returns the CPU microseconds of a signature by the module, in `at_once` concurrent sessions that are logged in.
pub(crate) fn bare_call(library: &Path, kind: DeviceKeyType, at_once: usize) -> Result<f64, String> {
    let failed = |e: cryptoki::error::Error| format!("{}: {e}", library.display());
    let module = Pkcs11::new(library).map_err(failed)?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).map_err(failed)?;
    let slots = module.get_slots_with_token().map_err(failed)?;
    let slot = slots.into_iter().find(|slot| module.get_token_info(*slot).is_ok_and(|token| token.label() == TOKEN));
    let slot = slot.ok_or("SoftHSM has no token with the label signet-load")?;
    // A login applies to all sessions of the process.
    let session = module.open_ro_session(slot).map_err(failed)?;
    session.login(UserType::User, Some(&AuthPin::new(PIN.into()))).map_err(failed)?;
    let digest = [7; 32];
    let micros = anchors::busy_micros(at_once, SIGNATURES_PER_BLOCK, || {
        let own = module.open_ro_session(slot).map_err(failed)?;
        let wanted = [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Label(kind.label().as_bytes().to_vec())];
        let key =
            *own.find_objects(&wanted).map_err(failed)?.first().ok_or("the SoftHSM token does not contain the key")?;
        let (mechanism, input) = match kind {
            DeviceKeyType::P256 => (Mechanism::Ecdsa, digest.to_vec()),
            DeviceKeyType::Rsa2048 => (Mechanism::RsaPkcs, [&DIGEST_INFO[..], &digest].concat()),
        };
        own.sign(&mechanism, key, &input).map_err(failed)?;
        Ok(move || own.sign(&mechanism, key, &input))
    })?;
    drop(session);
    module.finalize().map_err(failed)?;
    Ok(micros)
}

/// Returns the CPU microseconds of a signature by the server's software library, in `at_once` concurrent threads.
pub(crate) fn software(kind: DeviceKeyType, at_once: usize) -> Result<f64, String> {
    let random = SystemRandom::new();
    let message = [7u8; 700];
    match kind {
        DeviceKeyType::P256 => {
            let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|e| e.to_string())?;
            anchors::busy_micros(at_once, SIGNATURES_PER_BLOCK, || Ok(|| key.sign(&random, &message)))
        }
        DeviceKeyType::Rsa2048 => {
            let key = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|e| e.to_string())?;
            anchors::busy_micros(at_once, SIGNATURES_PER_BLOCK, || {
                let mut signature = vec![0; key.public_modulus_len()];
                let key = &key;
                let random = &random;
                Ok(move || key.sign(&RSA_PKCS1_SHA256, random, &message, &mut signature))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsa_signature_costs_more_than_p256() {
        let p256 = software(DeviceKeyType::P256, 2).unwrap();
        let rsa = software(DeviceKeyType::Rsa2048, 2).unwrap();
        assert!(p256 > 0.0 && rsa > p256, "{p256} {rsa}");
    }

    #[test]
    fn digest_info_lengths_match_the_digest() {
        assert_eq!(usize::from(DIGEST_INFO[1]), DIGEST_INFO.len() - 2 + 32);
        assert_eq!(DIGEST_INFO[18], 32);
    }
}
