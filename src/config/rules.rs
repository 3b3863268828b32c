//! Validation of the settings: the rules for each setting, and for combinations of settings.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use url::Url;

use super::reader::SettingReader;
use super::{Config, StoreLocation, audit, cloud, cloudb, listeners_overlap, seal, tls};
use crate::auth::LoginSettings;
use crate::fields::Fields;
use crate::http::settings::HttpSettings;
use crate::keys::{CloudSettings, StockSizes};
use crate::outbound::EgressPolicy;
use crate::pki::serials::SerialPrefix;
use crate::secret::Secret;
use crate::telemetry::{LogFormat, LogSettings, is_log_filter};

/// Validates `fields`. Adds violations to `problems`; the returned configuration has placeholders for invalid values.
pub(super) fn validate(fields: &Fields, problems: &mut Vec<String>) -> Config {
    let mut reader = SettingReader { fields, problems };
    let listen = reader.listen();
    let store = reader.store();
    let (max_body, max_bodies_in_flight) = reader.body_limits();
    let tls = tls::read_files(&mut reader, listen);
    let reach = EgressPolicy { loopback: reader.flag("outbound_loopback") };
    Config {
        listen,
        tls_renewal: tls::read_renewal(&mut reader, tls.as_ref()),
        tls,
        metrics_listen: reader.metrics_listen(listen),
        public_listen: reader.public_listen(listen),
        seal_key: seal::read_source(&mut reader, &store),
        store,
        workers: reader.number("workers", 0, 1024),
        max_connections: reader.number("max_connections", 0, 1_000_000),
        max_connections_per_address: reader.number("max_connections_per_address", 0, 1_000_000),
        public_max_connections: reader.number("public_max_connections", 0, 1_000_000),
        commit_queue: reader.number("commit_queue", 1, 1 << 20),
        // With fewer than 4 connections, a single caller could use all of them.
        projects_connections: reader.number("projects_connections", 4, 1000),
        rsa_key_stock: reader.rsa_key_stock(),
        http: HttpSettings {
            compat: reader.flag("compat"),
            max_body,
            max_bodies_in_flight,
            max_duration: reader.duration("max_request_duration", 1..=3600, "between 1s and 1h"),
            body_timeout: reader.duration("body_timeout", 1..=600, "between 1s and 10m"),
            open_metrics: false,
            external_url: reader.origin(
                "external_url",
                &["http", "https"],
                "a scheme and an authority, such as https://signet.example:8200",
            ),
            // RFC 5280, section 8, advises against https in the URLs of certificates.
            public_url: reader.origin("public_url", &["http"], "http and an authority, such as http://pki.example"),
            projects_rate_limit: reader.projects_rate_limit(),
            serial_numbers: reader.serial_numbers(),
            trusted_proxies: reader.trusted_proxies(),
        },
        audit: audit::read_devices(&mut reader),
        log: reader.log(),
        pkcs11_libraries: reader.pkcs11_libraries(),
        cloud: CloudSettings { egress_policy: reach, ..cloud::read_settings(&mut reader) },
        logins: LoginSettings { reach, cloudb: cloudb::read_settings(&mut reader) },
    }
}

impl SettingReader<'_> {
    fn listen(&mut self) -> SocketAddr {
        self.address("listen").unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Returns a URL that consists of one of these schemes and an authority. It has no path, because API paths are
    /// appended to it.
    fn origin(&mut self, name: &str, schemes: &[&str], rule: &str) -> Option<String> {
        self.parsed(name, rule, |text| {
            let url = Url::parse(text).ok().filter(|url| schemes.contains(&url.scheme()) && url.has_host());
            let bare = url.filter(|url| {
                url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty()
            });
            bare.map(|url| url.origin().ascii_serialization())
        })
    }

    /// Returns the size limit of one request body, and the limit of all request bodies in memory, which must not be
    /// smaller.
    fn body_limits(&mut self) -> (usize, usize) {
        let one = self.number("max_request_size", 1024, 64 << 20);
        let all = self.number("max_bodies_in_flight", 1 << 20, 1 << 40);
        if all < one {
            self.report("max_bodies_in_flight", "must not be less than max_request_size");
        }
        (one, all)
    }

    /// Returns the rate limit of the projects API. Known clients send bursts of at most 33 % of the limit, rounded
    /// down. With a limit below 4 they would send nothing.
    fn projects_rate_limit(&mut self) -> u32 {
        match self.number("projects_rate_limit", 0, 1_000_000) {
            1..=3 => {
                self.report("projects_rate_limit", "must be 0 or at least 4: known clients send nothing below that");
                0
            }
            limit => u32::try_from(limit).unwrap_or_default(),
        }
    }

    pub(super) fn rsa_key_stock(&mut self) -> StockSizes {
        let mut keys_in_stock = |name: &str| self.number(name, 0, StockSizes::MAX_KEYS_PER_SIZE);
        StockSizes {
            rsa_2048: keys_in_stock("rsa_key_stock.2048"),
            rsa_3072: keys_in_stock("rsa_key_stock.3072"),
            rsa_4096: keys_in_stock("rsa_key_stock.4096"),
        }
    }

    fn serial_numbers(&mut self) -> SerialPrefix {
        let parse = |text: &str| match text {
            "time" => Some(SerialPrefix::Time),
            "random" => Some(SerialPrefix::Random),
            _ => None,
        };
        self.parsed("serial_numbers", "time or random", parse).unwrap_or_default()
    }

    fn trusted_proxies(&mut self) -> Vec<IpNet> {
        let rule = "a list of networks such as 10.0.0.0/8, or of addresses";
        let given = self.optional("trusted_proxies", Fields::list, rule).unwrap_or_default();
        let networks: Option<Vec<_>> = given.iter().map(|text| parse_network(text)).collect();
        if networks.is_none() {
            self.report("trusted_proxies", &format!("must be {rule}"));
        }
        networks.unwrap_or_default()
    }

    fn metrics_listen(&mut self, listen: SocketAddr) -> Option<SocketAddr> {
        let address = self.address("metrics_listen")?;
        if listeners_overlap(address, listen) {
            self.report("metrics_listen", "overlaps with listen; choose another port");
        }
        Some(address)
    }

    fn public_listen(&mut self, listen: SocketAddr) -> Option<SocketAddr> {
        let address = self.address("public_listen")?;
        let metrics = self.fields.text("metrics_listen").ok().flatten().and_then(|text| text.parse().ok());
        if listeners_overlap(address, listen) || metrics.is_some_and(|metrics| listeners_overlap(address, metrics)) {
            self.report("public_listen", "overlaps with listen or metrics_listen; choose another port");
        }
        Some(address)
    }

    fn store(&mut self) -> StoreLocation {
        let folder = self.path("data_dir", "the path of a folder");
        match (folder, self.optional("database_url", Fields::text, "a URL")) {
            (Some(folder), None) => return StoreLocation::Embedded(folder),
            (None, Some(url)) => {
                if !is_database_url(&url) {
                    self.report("database_url", "must be a URL such as postgres://user:password@host:5432/database");
                }
                return StoreLocation::Database(Secret::new(url));
            }
            (Some(_), Some(_)) => self.report("database_url", "must not be given with data_dir"),
            (None, None) => self.report("data_dir", "must be the path of a folder, unless database_url is set"),
        }
        StoreLocation::Embedded(PathBuf::new())
    }

    pub(super) fn log(&mut self) -> LogSettings {
        let access = self.flag("log_access");
        LogSettings { filter: self.log_filter(), format: self.log_format(), access }
    }

    fn log_filter(&mut self) -> String {
        let rule = "off, error, warn, info, debug or trace, or target=level, joined by commas";
        self.parsed("log", rule, |text| is_log_filter(text).then(|| text.to_owned())).unwrap_or_default()
    }

    fn log_format(&mut self) -> LogFormat {
        let parse = |text: &str| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        };
        self.parsed("log_format", "text or json", parse).unwrap_or_default()
    }

    fn pkcs11_libraries(&mut self) -> BTreeMap<String, PathBuf> {
        let rule = "names of a-z, 0-9, _ and -, each once, with the absolute path of a library";
        let given = self.optional("pkcs11_libraries", Fields::map, rule).unwrap_or_default();
        let libraries: BTreeMap<_, _> = given.into_iter().map(|(name, path)| (name, PathBuf::from(path))).collect();
        let is_name = |name: &str| {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
            !name.is_empty() && name.bytes().all(allowed)
        };
        // Compares the number of pairs with the number of names, because of several pairs with the same name only the
        // last is left in the map.
        let pairs = self.fields.str("pkcs11_libraries").ok().flatten().filter(|text| !text.trim().starts_with('{'));
        let are_names_unique =
            pairs.is_none_or(|text| text.split(',').count() == libraries.len() || text.trim().is_empty());
        // The dynamic loader searches a relative path in directories in which other users may create files.
        if !are_names_unique || !libraries.iter().all(|(name, path)| is_name(name) && path.is_absolute()) {
            self.report("pkcs11_libraries", &format!("must be {rule}"));
        }
        libraries
    }
}

/// Parses a network in CIDR notation, or a single IP address.
fn parse_network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    text.parse::<IpNet>().ok().map(|network| network.trunc()).or_else(address)
}

/// `true` for a PostgreSQL URL with a database name and a host, in the authority or the option `host` or `hostaddr`.
/// The store validates the rest of the URL.
fn is_database_url(text: &str) -> bool {
    let Some(rest) = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme)) else {
        return false;
    };
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let (location, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, database) = location.split_once('/').unwrap_or((location, ""));
    let is_host = |option: &str| option.starts_with("host=") || option.starts_with("hostaddr=");
    !database.is_empty() && (!hosts.is_empty() || options.split('&').any(is_host))
}
