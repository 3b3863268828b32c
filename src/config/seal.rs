//! The settings of the seal key: `seal_key_file`, `SIGNET_SEAL_KEY` and the table `seal`.

use std::path::PathBuf;

use super::reader::SettingReader;
use super::{SealKeySource, StoreLocation};
use crate::fields::Fields;
use crate::keys::cloudakms::AkmsSealSettings;
use crate::keys::pkcs11::{Pkcs11SealSettings, Pkcs11Settings, TokenAddress};
use crate::keys::seal::{SealMechanism, SecretSource};
use crate::secret::Secret;

const FILE_SEAL_SETTINGS: &[&str] = &["seal_key_file", "seal_key"];
const PKCS11_SEAL_SETTINGS: &[&str] =
    &["seal.library", "seal.slot", "seal.token_label", "seal.key_label", "seal.key_id", "seal.pin_file", "seal.pin"];
const CLOUDAKMS_SEAL_SETTINGS: &[&str] =
    &["seal.kms_key", "seal.region", "seal.endpoint", "seal.access_key", "seal.secret_key_file", "seal.secret_key"];

/// Pairs of settings for the same secret: the secret itself, and the file that contains it. Only one of each pair may
/// be given.
const SECRET_AND_FILE_SETTINGS: [[&str; 2]; 3] =
    [["seal_key", "seal_key_file"], ["seal.pin", "seal.pin_file"], ["seal.secret_key", "seal.secret_key_file"]];

/// For a setting of [`SECRET_AND_FILE_SETTINGS`], returns the other setting of its pair.
pub(super) fn other_secret_form(name: &str) -> Option<&'static str> {
    SECRET_AND_FILE_SETTINGS.into_iter().find_map(|[secret, file]| match name {
        _ if name == secret => Some(file),
        _ if name == file => Some(secret),
        _ => None,
    })
}

/// Returns the configured source of the seal key. The default is the file `seal.key` in the data folder.
pub(super) fn read_source(reader: &mut SettingReader<'_>, store: &StoreLocation) -> SealKeySource {
    let kind = text(reader, "seal.type").unwrap_or_default();
    let other_settings: [&[&str]; 2] = match kind.as_str() {
        "file" => [PKCS11_SEAL_SETTINGS, CLOUDAKMS_SEAL_SETTINGS],
        "pkcs11" => [FILE_SEAL_SETTINGS, CLOUDAKMS_SEAL_SETTINGS],
        "cloudakms" => [FILE_SEAL_SETTINGS, PKCS11_SEAL_SETTINGS],
        _ => {
            reader.report("seal.type", "must be file, pkcs11 or cloudakms; a seal of another type is not supported");
            return SealKeySource::File(PathBuf::new());
        }
    };
    for name in other_settings.concat() {
        if reader.fields.has(name) {
            // A setting of another seal type is an error, because it is unclear which type the operator means.
            reader.report(name, &format!("must not be given with a seal of type {kind}"));
        }
    }
    match kind.as_str() {
        "pkcs11" => SealKeySource::Pkcs11(read_pkcs11_settings(reader)),
        "cloudakms" => SealKeySource::CloudAkms(read_cloudakms_settings(reader)),
        _ => read_file_source(reader, store),
    }
}

fn read_file_source(reader: &mut SettingReader<'_>, store: &StoreLocation) -> SealKeySource {
    let file = reader.path("seal_key_file", "the path of a file");
    match (file, text(reader, "seal_key"), store) {
        (Some(file), None, _) => SealKeySource::File(file),
        (None, Some(text), _) => SealKeySource::Text(Secret::new(text)),
        (None, None, StoreLocation::Embedded(folder)) => SealKeySource::File(folder.join("seal.key")),
        (None, None, StoreLocation::Database(_)) => {
            reader.report(
                "seal_key_file",
                "must be given with database_url, unless SIGNET_SEAL_KEY is set in the environment",
            );
            SealKeySource::File(PathBuf::new())
        }
        (Some(file), Some(_), _) => {
            // Two keys are an error and neither takes precedence, because sealing with the wrong key cannot be undone.
            reader.report("seal_key_file", "must not be given with SIGNET_SEAL_KEY");
            SealKeySource::File(file)
        }
    }
}

fn read_pkcs11_settings(reader: &mut SettingReader<'_>) -> Pkcs11SealSettings {
    let slot = text(reader, "seal.slot").and_then(|slot| {
        Pkcs11Settings::parse_slot(&slot).unwrap_or_else(|_| {
            reader.report("seal.slot", "must be a decimal number");
            None
        })
    });
    let label = text(reader, "seal.token_label").unwrap_or_default();
    let token = match (slot, label.is_empty()) {
        (Some(slot), true) => TokenAddress::Slot(slot),
        (Some(_), false) => {
            reader.report("seal.slot", "must not be given with seal.token_label");
            TokenAddress::Label(label)
        }
        (None, is_empty) => {
            if is_empty && !reader.fields.has("seal.slot") {
                reader.report("seal.token_label", "a seal of type pkcs11 needs this setting or seal.slot");
            }
            TokenAddress::Label(label)
        }
    };
    let key_label = text(reader, "seal.key_label");
    let key_id = read_key_id(reader);
    if key_label.is_none() && !reader.fields.has("seal.key_id") {
        reader.report("seal.key_label", "must be given with a seal of type pkcs11, unless seal.key_id is given");
    }
    let mechanism = SealMechanism::from_name(&text(reader, "seal.mechanism").unwrap_or_default());
    if mechanism.is_none() {
        reader.report("seal.mechanism", "must be AES-GCM, RSA-OAEP or RSA-OAEP-SHA1");
    }
    let library = text(reader, "seal.library").unwrap_or_default();
    if library.is_empty() {
        reader.report("seal.library", "must be given with a seal of type pkcs11: a name from pkcs11_libraries");
    }
    let pin = read_secret(reader, "seal.pin", "seal.pin_file").unwrap_or_else(|| {
        reader.report(
            "seal.pin_file",
            "must be given with a seal of type pkcs11, unless SIGNET_SEAL_PIN is set in the environment",
        );
        SecretSource::File(PathBuf::new())
    });
    Pkcs11SealSettings { library, token, key_label, key_id, mechanism: mechanism.unwrap_or(SealMechanism::AesGcm), pin }
}

fn read_key_id(reader: &mut SettingReader<'_>) -> Option<Vec<u8>> {
    let key_id = text(reader, "seal.key_id")?;
    Pkcs11Settings { key_id, ..Pkcs11Settings::default() }.key_id_bytes().unwrap_or_else(|_| {
        reader.report("seal.key_id", "must be the identifier in hexadecimal");
        None
    })
}

fn read_cloudakms_settings(reader: &mut SettingReader<'_>) -> AkmsSealSettings {
    let settings = AkmsSealSettings {
        kms_key: text(reader, "seal.kms_key").unwrap_or_default(),
        region: text(reader, "seal.region").unwrap_or_default(),
        endpoint: text(reader, "seal.endpoint").unwrap_or_default(),
        access_key: text(reader, "seal.access_key").unwrap_or_default(),
        secret_key: read_secret(reader, "seal.secret_key", "seal.secret_key_file"),
    };
    for (name, rule) in settings.problems() {
        reader.report(name, &rule);
    }
    settings
}

/// Returns the source of a secret, which is given either directly (setting `name`) or by its file (setting `file`).
fn read_secret(reader: &mut SettingReader<'_>, name: &str, file: &str) -> Option<SecretSource> {
    let given = text(reader, name).map(|text| SecretSource::Inline(Secret::new(text)));
    let path = reader.path(file, "the path of a file").map(SecretSource::File);
    if given.is_some() && path.is_some() {
        reader.report(file, &format!("must not be given with {name}, which is set in the environment"));
    }
    given.or(path)
}

fn text(reader: &mut SettingReader<'_>, name: &str) -> Option<String> {
    reader.optional(name, Fields::text, "a text").filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const PKCS11_SEAL: &str = "data_dir = \"d\"\n[seal]\ntype = \"pkcs11\"\nlibrary = \"hsm\"\n";
    const CLOUDAKMS_SEAL: &str = "data_dir = \"d\"\n[seal]\ntype = \"cloudakms\"\n";

    fn no_variables(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn pkcs11_seal_settings_are_read_completely() {
        let text =
            format!("{PKCS11_SEAL}token_label = \"t\"\nkey_label = \"k\"\nkey_id = \"0x0aFF\"\npin_file = \"/p\"");
        let SealKeySource::Pkcs11(read) = parse(&text, no_variables).ok().unwrap().seal_key else { panic!() };
        assert!(read.token == TokenAddress::Label("t".to_owned()) && read.pin == SecretSource::File("/p".into()));
        assert_eq!((read.library.as_str(), read.key_label.as_deref()), ("hsm", Some("k")));
        assert_eq!((read.key_id, read.mechanism), (Some(vec![10, 255]), SealMechanism::AesGcm));
        let env = |name: &str| match name {
            "SIGNET_SEAL_PIN" => Some("4711".to_owned()),
            "SIGNET_SEAL_SLOT" => Some("7".to_owned()),
            "SIGNET_SEAL_MECHANISM" => Some("RSA-OAEP".to_owned()),
            _ => None,
        };
        let text = format!("{PKCS11_SEAL}key_id = \"01\"");
        let SealKeySource::Pkcs11(read) = parse(&text, env).ok().unwrap().seal_key else { panic!() };
        assert!(read.token == TokenAddress::Slot(7) && read.pin == SecretSource::Inline(Secret::new("4711")));
        assert_eq!(read.mechanism, SealMechanism::RsaOaepSha256);
    }

    #[test]
    fn seal_secret_of_the_environment_overrides_a_config_file() {
        let text = "data_dir = \"d\"\nseal_key_file = \"/s\"";
        let source = |set: &'static [&str]| {
            let env = move |name: &str| set.contains(&name).then(|| "/other".to_owned());
            parse(text, env).map(|config| config.seal_key)
        };
        assert!(source(&[]).ok().unwrap() == SealKeySource::File("/s".into()));
        assert!(source(&["SIGNET_SEAL_KEY"]).ok().unwrap() == SealKeySource::Text(Secret::new("/other")));
        assert!(source(&["SIGNET_SEAL_KEY_FILE"]).ok().unwrap() == SealKeySource::File("/other".into()));
        assert!(source(&["SIGNET_SEAL_KEY", "SIGNET_SEAL_KEY_FILE"]).is_err(), "neither wins");
        let text = format!("{PKCS11_SEAL}slot = \"1\"\nkey_label = \"k\"\npin_file = \"/p\"");
        let env = |name: &str| (name == "SIGNET_SEAL_PIN").then(|| "4711".to_owned());
        let SealKeySource::Pkcs11(read) = parse(&text, env).ok().unwrap().seal_key else { panic!() };
        assert!(read.pin == SecretSource::Inline(Secret::new("4711")));
    }

    #[test]
    fn cloudakms_seal_settings_are_read_completely() {
        let text = format!("{CLOUDAKMS_SEAL}kms_key = \"alias/x\"\nregion = \"eu-central-1\"\naccess_key = \"AK\"");
        let env = |name: &str| (name == "SIGNET_SEAL_SECRET_KEY").then(|| "SK".to_owned());
        let SealKeySource::CloudAkms(read) = parse(&text, env).ok().unwrap().seal_key else { panic!() };
        assert_eq!((read.kms_key.as_str(), read.region.as_str()), ("alias/x", "eu-central-1"));
        assert!(read.secret_key == Some(SecretSource::Inline(Secret::new("SK"))));
    }

    #[test]
    fn invalid_seal_settings_are_refused_with_rule_not_value() {
        let file = "data_dir = \"d\"\n[seal]\n";
        for (text, problem) in [
            (format!("{file}type = \"transit\""), "seal.type: must be file, pkcs11 or cloudakms"),
            (format!("{file}pin = \"4711\""), "seal.pin: can only be set in the environment, as SIGNET_SEAL_PIN"),
            (format!("{file}library = \"hsm\""), "seal.library: must not be given with a seal of type file"),
            (
                format!("seal_key_file = \"s\"\n{CLOUDAKMS_SEAL}kms_key = \"k\""),
                "seal_key_file: must not be given with",
            ),
            (
                format!("{CLOUDAKMS_SEAL}kms_key = \"k\"\nslot = \"1\""),
                "seal.slot: must not be given with a seal of type",
            ),
            (CLOUDAKMS_SEAL.to_owned(), "seal.kms_key: is required for a seal of type cloudakms"),
            (format!("{CLOUDAKMS_SEAL}kms_key = \"a b\""), "seal.kms_key: must be 1 to 2048 letters"),
            (
                format!("{CLOUDAKMS_SEAL}kms_key = \"k\"\naccess_key = \"AK\""),
                "seal.access_key: must be set together with secret_key",
            ),
            (
                format!("{CLOUDAKMS_SEAL}kms_key = \"k\"\nendpoint = \"http://kms.test\""),
                "seal.endpoint: must be an absolute",
            ),
            (format!("{CLOUDAKMS_SEAL}kms_key = \"k\"\nregion = \"e/\""), "seal.region: must be 1 to 32 letters"),
            (
                format!("{PKCS11_SEAL}key_label = \"k\"\npin_file = \"p\""),
                "seal.token_label: a seal of type pkcs11 needs",
            ),
            (
                format!("{PKCS11_SEAL}slot = \"x\"\nkey_label = \"k\"\npin_file = \"p\""),
                "seal.slot: must be a decimal number",
            ),
            (format!("{PKCS11_SEAL}slot = \"1\"\npin_file = \"p\""), "seal.key_label: must be given"),
            (
                format!("{PKCS11_SEAL}slot = \"1\"\nkey_id = \"abc\"\npin_file = \"p\""),
                "seal.key_id: must be the identifier",
            ),
            (format!("{PKCS11_SEAL}slot = \"1\"\nkey_id = \"ab\""), "seal.pin_file: must be given"),
            (
                format!("{PKCS11_SEAL}slot = \"1\"\ntoken_label = \"t\"\nkey_id = \"ab\"\npin_file = \"p\""),
                "seal.slot: must not be given with seal.token_label",
            ),
            (
                format!("{PKCS11_SEAL}slot = \"1\"\nkey_id = \"ab\"\npin_file = \"p\"\nmechanism = \"RSA\""),
                "seal.mechanism: must be AES-GCM, RSA-OAEP or RSA-OAEP-SHA1",
            ),
        ] {
            let error = parse(&text, no_variables).err().unwrap();
            assert!(error.text().starts_with(problem), "{text}: {error}");
            assert!(!error.text().contains("4711"));
        }
    }

    #[test]
    fn example_lines_of_each_seal_type_are_accepted_together() {
        let example = include_str!("../../signet.example.toml");
        let line = |name: &str| {
            let begin = format!("# {name} = ");
            let line = example.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{name}"));
            line.trim_start_matches("# ").to_owned()
        };
        for (kind, names) in [("pkcs11", PKCS11_SEAL_SETTINGS), ("cloudakms", CLOUDAKMS_SEAL_SETTINGS)] {
            let with = |name: &&&str| !name.ends_with("pin") && !name.ends_with("secret_key") && **name != "seal.slot";
            let lines: Vec<_> = names.iter().filter(with).map(|name| line(name)).collect();
            let text = format!("data_dir = \"d\"\nseal.type = \"{kind}\"\n{}", lines.join("\n"));
            let parsed = parse(&text, no_variables);
            assert!(parsed.is_ok(), "{text}: {}", parsed.err().unwrap());
        }
    }
}
