//! The setting `audit`: `[[audit]]` tables, one for each audit device, or the path of a single audit log file.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::reader::SettingReader;
use crate::audit::{AuditDeviceSettings, AuditTarget, CollectorAddress};
use crate::error::{Error, Result};
use crate::fields::{Fields, MAX_NAME_LEN};

const MAX_AUDIT_DEVICES: usize = 16;
/// Name of the audit device if the setting `audit` is the path of a file.
pub(super) const DEFAULT_DEVICE_NAME: &str = "file";
/// Fields that an audit device of any type may have.
const DEVICE_FIELDS: [&str; 5] = ["type", "name", "log_raw", "hmac_accessor", "elide_list_responses"];
const FILE_FIELDS: [&str; 3] = ["file_path", "mode", "fsync"];
const SOCKET_FIELDS: [&str; 3] = ["address", "socket_type", "write_timeout"];

pub(super) fn read_devices(reader: &mut SettingReader<'_>) -> Vec<AuditDeviceSettings> {
    let devices = match reader.fields.value("audit") {
        None => Vec::new(),
        Some(Value::String(path)) => vec![Ok(AuditDeviceSettings::file(DEFAULT_DEVICE_NAME, path))],
        Some(Value::Array(tables)) if tables.len() <= MAX_AUDIT_DEVICES => tables.iter().map(parse_device).collect(),
        Some(_) => vec![Err(Error::invalid("must be tables of devices, at most 16, or the path of a file"))],
    };
    let mut good: Vec<AuditDeviceSettings> = Vec::new();
    for device in devices {
        match device {
            Ok(device) if good.iter().any(|other| other.name == device.name) => {
                reader.report("audit", "two devices have the same name; give each device its own name");
            }
            Ok(device) => good.push(device),
            Err(error) => reader.report("audit", error.text()),
        }
    }
    good
}

fn parse_device(table: &Value) -> Result<AuditDeviceSettings> {
    let members = table.as_object().ok_or_else(|| Error::invalid("must be tables of devices"))?;
    let mut fields = Fields::default();
    for (name, value) in members {
        fields.set(name, value.clone());
    }
    if fields.has("prefix") {
        return Err(Error::invalid(
            "prefix is not supported: a prefix such as #!/bin/sh could make the log file a program",
        ));
    }
    let known = [&DEVICE_FIELDS[..], &FILE_FIELDS, &SOCKET_FIELDS].concat();
    if fields.unknown(&known).next().is_some() {
        return Err(Error::invalid(format!("unknown setting of a device; the settings are {}", known.join(", "))));
    }
    let kind = fields.text("type").ok().flatten().unwrap_or_default();
    let target = match &kind[..] {
        "file" => parse_file_target(&fields)?,
        "stdout" => AuditTarget::Stdout,
        "socket" => parse_socket_target(&fields)?,
        _ => return Err(Error::invalid("type must be file, stdout or socket")),
    };
    let require_kind = |names: &[&str], of: &str| match names.iter().find(|name| fields.has(name)) {
        Some(name) if kind != of => Err(Error::invalid(format!("{name} is for devices of type {of}"))),
        _ => Ok(()),
    };
    require_kind(&FILE_FIELDS, "file")?;
    require_kind(&SOCKET_FIELDS, "socket")?;
    let name = read_text(&fields, "name")?.unwrap_or(kind);
    if name.is_empty()
        || name.len() > MAX_NAME_LEN
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    {
        return Err(Error::invalid("name must consist of letters, digits, - and _"));
    }
    let defaults = AuditDeviceSettings::new(name, target);
    Ok(AuditDeviceSettings {
        log_raw: read_flag(&fields, "log_raw", defaults.log_raw)?,
        hmac_accessor: read_flag(&fields, "hmac_accessor", defaults.hmac_accessor)?,
        elide_list_responses: read_flag(&fields, "elide_list_responses", defaults.elide_list_responses)?,
        ..defaults
    })
}

fn parse_file_target(fields: &Fields) -> Result<AuditTarget> {
    let path = read_text(fields, "file_path")?.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| Error::invalid("file_path must be the path of a file"))?;
    let mode = match read_text(fields, "mode")? {
        None => 0o600,
        Some(text) => {
            let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| mode & !0o666 == 0 && mode & 0o600 == 0o600);
            mode.ok_or_else(|| {
                Error::invalid("mode must be octal, such as \"0640\": read and write for the owner, no execute bits")
            })?
        }
    };
    Ok(AuditTarget::File { path: PathBuf::from(path), mode, fsync: read_flag(fields, "fsync", false)? })
}

fn parse_socket_target(fields: &Fields) -> Result<AuditTarget> {
    let address = read_text(fields, "address")?.filter(|address| !address.is_empty());
    let address =
        address.ok_or_else(|| Error::invalid("address must be a host and a port, or the path of a socket"))?;
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let peer = match read_text(fields, "socket_type")?.as_deref() {
        None | Some("tcp") if has_port => CollectorAddress::Tcp(address),
        None | Some("tcp") => return Err(Error::invalid("address must be a host and a port")),
        Some("unix") => CollectorAddress::Unix(PathBuf::from(address)),
        // UDP is not supported, because lost audit records would go unnoticed.
        Some(_) => return Err(Error::invalid("socket_type must be tcp or unix")),
    };
    let timeout = fields.duration("write_timeout").ok().flatten().unwrap_or(Duration::from_secs(2));
    if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&timeout) {
        return Err(Error::invalid("write_timeout must be between 100ms and 60s"));
    }
    Ok(AuditTarget::Socket { peer, write_timeout: timeout })
}

fn read_text(fields: &Fields, name: &str) -> Result<Option<String>> {
    fields.text(name).map_err(|_| Error::invalid(format!("{name} must be a text")))
}

fn read_flag(fields: &Fields, name: &str, default: bool) -> Result<bool> {
    let given = fields.bool(name).map_err(|_| Error::invalid(format!("{name} must be true or false")))?;
    Ok(given.unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn parsed(audit: &str) -> Result<Vec<AuditDeviceSettings>> {
        parse(&format!("data_dir = \"d\"\n{audit}"), |_| None).map(|config| config.audit)
    }

    #[test]
    fn audit_devices_are_read_from_tables() {
        let devices = parsed(
            "[[audit]]\ntype = \"file\"\nfile_path = \"/a\"\nmode = \"0640\"\nfsync = true\n\
             [[audit]]\ntype = \"stdout\"\nlog_raw = true\n\
             [[audit]]\ntype = \"socket\"\nname = \"siem\"\naddress = \"log.test:514\"\nwrite_timeout = \"1s\"\n\
             [[audit]]\ntype = \"socket\"\naddress = \"/run/log\"\nsocket_type = \"unix\"\nhmac_accessor = false",
        )
        .ok()
        .unwrap();
        let file = AuditTarget::File { path: "/a".into(), mode: 0o640, fsync: true };
        assert_eq!(devices[0], AuditDeviceSettings::new("file", file));
        assert_eq!(
            devices[1],
            AuditDeviceSettings { log_raw: true, ..AuditDeviceSettings::new("stdout", AuditTarget::Stdout) }
        );
        let tcp = AuditTarget::Socket {
            peer: CollectorAddress::Tcp("log.test:514".into()),
            write_timeout: Duration::from_secs(1),
        };
        assert_eq!(devices[2], AuditDeviceSettings::new("siem", tcp));
        let unix = AuditTarget::Socket {
            peer: CollectorAddress::Unix("/run/log".into()),
            write_timeout: Duration::from_secs(2),
        };
        assert_eq!(
            devices[3],
            AuditDeviceSettings { hmac_accessor: false, ..AuditDeviceSettings::new("socket", unix) }
        );
        let env = |name: &str| (name == "SIGNET_AUDIT").then(|| "/var/log/a".to_owned());
        let config = parse("data_dir = \"d\"", env).ok().unwrap();
        assert_eq!(config.audit, [AuditDeviceSettings::file("file", "/var/log/a")]);
    }

    /// CVE-2025-6000 (an executable log file) and CVE-2025-54997 (a line prefix).
    #[test]
    fn cve_2025_6000_and_54997_no_executable_audit_file_or_prefix() {
        for mode in ["0755", "0700", "0601", "4600", "1777", "0200", "x", "0o600"] {
            let refusal = parsed(&format!("[[audit]]\ntype = \"file\"\nfile_path = \"/a\"\nmode = \"{mode}\""));
            assert!(refusal.err().unwrap().text().starts_with("audit: mode must be"), "{mode}");
        }
        let prefix = parsed("[[audit]]\ntype = \"file\"\nfile_path = \"/a\"\nprefix = \"#!/bin/sh\"");
        assert!(prefix.err().unwrap().text().starts_with("audit: prefix is not supported"));
    }

    #[test]
    fn invalid_audit_settings_are_refused_with_their_rule() {
        for (table, problem) in [
            ("type = \"syslog\"", "audit: type must be file, stdout or socket"),
            ("file_path = \"/a\"", "audit: type must be"),
            ("type = \"file\"", "audit: file_path must be"),
            ("type = \"file\"\nfile_path = \"/a\"\naddress = \"a:1\"", "audit: address is for devices of type socket"),
            ("type = \"stdout\"\nfsync = true", "audit: fsync is for devices of type file"),
            ("type = \"stdout\"\ncolour = 1", "audit: unknown setting of a device"),
            ("type = \"stdout\"\nname = \"a b\"", "audit: name must consist of"),
            ("type = \"stdout\"\nlog_raw = \"maybe\"", "audit: log_raw must be true or false"),
            ("type = \"socket\"\naddress = \"/run/log\"", "audit: address must be a host and a port"),
            ("type = \"socket\"\naddress = \"h:1\"\nsocket_type = \"udp\"", "audit: socket_type must be tcp or unix"),
            ("type = \"socket\"\naddress = \"h:1\"\nwrite_timeout = \"1h\"", "audit: write_timeout must be"),
            ("type = \"stdout\"\n[[audit]]\ntype = \"stdout\"", "audit: two devices have the same name"),
        ] {
            let refusal = parsed(&format!("[[audit]]\n{table}")).err().unwrap();
            assert!(refusal.text().starts_with(problem), "{table}: {}", refusal.text());
        }
        assert!(parsed("audit = 7").err().unwrap().text().starts_with("audit: must be tables"));
    }
}
