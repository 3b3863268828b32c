//! The URL of a PostgreSQL database: its parameters and their validation.
//!
//! The parameters have libpq's names and meanings. The TLS parameters, `passfile`, `target_session_attrs` and
//! `tcp_user_timeout` are parsed here, and all others by tokio-postgres. Each host becomes a separate
//! [`PostgresServer`].

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use url::form_urlencoded;

use super::passfile;
use super::tls::{CertVerification, ClientCertificateFiles, PostgresTlsFiles, TrustRoots};
use crate::error::{Error, Result};

/// Maximum time to connect to one server and set up its session.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// Default connect timeout per address. It leaves time to retransmit a lost packet, and to try other addresses of a
/// host name when several are unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_200);
/// Default of two limits: the time that sent data may be unacknowledged, and the idle time of a connection after which
/// keepalive probes are sent.
const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of hosts in a URL. All hosts are tried concurrently.
const MAX_HOSTS: usize = 16;

/// The parameters that this module parses; tokio-postgres parses all others.
const PARAMETERS_PARSED_HERE: [&str; 7] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "target_session_attrs", "tcp_user_timeout"];

/// Default of [`PostgresUrl::with_projects_connections`].
const DEFAULT_PROJECTS_CONNECTIONS: usize = 8;

/// The location of a database, the credentials, and the maximum number of connections for the projects API. May contain
/// a password, so it has no `Debug`.
#[derive(Clone)]
pub struct PostgresUrl(Arc<PostgresUrlInner>);

#[derive(Clone)]
struct PostgresUrlInner {
    servers: Vec<PostgresServer>,
    tls: Option<PostgresTlsFiles>,
    passfile: Option<PathBuf>,
    projects_connections: usize,
}

#[derive(Clone)]
pub(super) struct PostgresServer {
    /// Settings for connecting to the server, except those read from files.
    pub(super) config: Config,
    /// Host and port of the server, for error messages.
    pub(super) name: String,
    /// `true` if a client certificate is sent to the server.
    pub(super) shows_certificate: bool,
}

impl PostgresUrl {
    /// Parses `postgres://user:password@host:port/database?option=value`, or the same parameters as `key=value` pairs.
    /// A folder as host (`?host=/run/postgresql`) is a unix socket. Of several hosts, the one that accepts writes is
    /// used.
    ///
    /// # Errors
    /// `Invalid` when the URL is malformed, has an unknown parameter or an invalid value, or names a remote host
    /// without `sslmode`. The text names the parameter and never quotes the URL.
    pub fn parse(text: &str) -> Result<Self> {
        let (rest, own) = split_parameters(text);
        let all: Config = rest.parse().map_err(|error| convert_parse_error(&error))?;
        let addresses = host_addresses(&all)?;
        let mode = TlsMode::of(&own)?;
        if all.get_ssl_mode() != SslMode::Prefer || all.get_target_session_attrs() != TargetSessionAttrs::Any {
            // Normally `split_parameters` has removed both parameters. Reached only if tokio-postgres splits the text
            // differently.
            return Err(url_error("must be of the form postgres://user:password@host:5432/database"));
        }
        if own.get("target_session_attrs").is_some_and(|text| !ACCEPTED_SESSION_ATTRS.contains(&text)) {
            return Err(url_error(
                "target_session_attrs: must be read-write: a node writes, and reads what was written",
            ));
        }
        if all.get_load_balance_hosts() != LoadBalanceHosts::Disable {
            return Err(url_error("load_balance_hosts: must be disable: only one server takes writes"));
        }
        let tls = tls_files(mode, &own)?;
        check_hosts(&addresses, tls.is_some(), mode)?;
        if tls.is_none() && all.get_channel_binding() == ChannelBinding::Require {
            return Err(url_error("channel_binding: require needs sslmode=require, verify-ca or verify-full"));
        }
        if own.get("passfile").is_some() && all.get_user().is_none_or(str::is_empty) {
            return Err(url_error("passfile: needs a user, whose name selects the password"));
        }
        let common = shared_config(&all, tls.is_some(), parse_tcp_user_timeout(&own)?);
        let shows = tls.as_ref().is_some_and(|files| files.client.is_some());
        let servers = addresses.iter().map(|address| address.server(&common, shows)).collect();
        let passfile = own.get("passfile").map(PathBuf::from);
        let projects_connections = DEFAULT_PROJECTS_CONNECTIONS;
        Ok(Self(Arc::new(PostgresUrlInner { servers, tls, passfile, projects_connections })))
    }

    /// Sets the maximum number of connections for the projects API. With at least 4, one caller cannot use all of them.
    #[must_use]
    pub fn with_projects_connections(mut self, max: usize) -> Self {
        Arc::make_mut(&mut self.0).projects_connections = max;
        self
    }

    pub(super) fn projects_connections(&self) -> usize {
        self.0.projects_connections
    }

    pub(super) fn tls(&self) -> Option<&PostgresTlsFiles> {
        self.0.tls.as_ref()
    }

    /// Returns the servers of the URL, with their passwords. Reads the password file, so it blocks.
    ///
    /// # Errors
    /// `Invalid` when the password file cannot be used.
    pub(super) fn servers(&self) -> Result<Vec<PostgresServer>> {
        let mut servers = self.0.servers.clone();
        let Some(file) = &self.0.passfile else { return Ok(servers) };
        let content = passfile::read_file(file).map_err(|error| error.within(ERROR_PREFIX))?;
        for server in servers.iter_mut().filter(|server| server.config.get_password().is_none()) {
            if let Some(password) = passfile::find_password(&content, &server.config) {
                server.config.password(password.expose());
            }
        }
        Ok(servers)
    }
}

/// Prefix of the error messages about the URL.
pub(super) const ERROR_PREFIX: &str = "database URL";

/// Accepted values of `target_session_attrs`. They are equivalent, because a node uses only servers that accept writes.
const ACCEPTED_SESSION_ATTRS: [&str; 3] = ["read-write", "primary", "any"];

fn url_error(rule: &str) -> Error {
    Error::invalid(format!("{ERROR_PREFIX}: {rule}"))
}

/// Converts a parse error of tokio-postgres to an error for the operator. The result quotes no value. It quotes a
/// parameter name only if the text looks like a name, because the rest of an unescaped password may appear in its
/// place.
fn convert_parse_error(error: &tokio_postgres::Error) -> Error {
    let parse_error = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let quoted = |begin: &str| parse_error.strip_prefix(begin)?.strip_suffix('`');
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if let Some(name) = quoted("invalid value for option `") {
        return url_error(&format!("{name}: invalid value"));
    }
    match quoted("unknown option `") {
        Some(name) => {
            url_error(&format!("{}: unknown or unsupported parameter", Some(name).filter(is_name).unwrap_or("?")))
        }
        None => url_error("must be of the form postgres://user:password@host:5432/database"),
    }
}

/// The parameters that this module parses. If a name is repeated, its last value is used.
#[derive(Default)]
struct UrlParameters(Vec<(&'static str, String)>);

impl UrlParameters {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    /// Stores a parameter that this module parses and returns `true`; returns `false` for any other.
    fn accept(&mut self, name: &str, value: &str) -> bool {
        let own = PARAMETERS_PARSED_HERE.iter().find(|own| **own == name);
        self.0.extend(own.map(|own| (*own, value.to_owned())));
        own.is_some()
    }
}

/// Splits the text of a URL into the text for tokio-postgres and the parameters that this module parses.
fn split_parameters(text: &str) -> (String, UrlParameters) {
    let mut own = UrlParameters::default();
    let Some(at) =
        ["postgres://", "postgresql://"].iter().find_map(|begin| text.starts_with(begin).then_some(begin.len()))
    else {
        let rest: Vec<&str> = split_pairs(text).filter(|word| !accept_own_pair(word, &mut own)).collect();
        return (rest.join(" "), own);
    };
    // The search for `?` starts at the host, because a password may contain question marks.
    let host = text[at..].find('@').map_or(at, |found| at + found);
    let Some((before, options)) = text[host..].split_once('?') else { return (text.to_owned(), own) };
    let mut rest = text[..host + before.len()].to_owned();
    let mut mark = '?';
    for pair in options.split('&').filter(|pair| !pair.is_empty()) {
        // As in libpq, a plus sign is literal and does not stand for a space.
        let plus = pair.replace('+', "%2B");
        if form_urlencoded::parse(plus.as_bytes()).next().is_some_and(|(name, value)| own.accept(&name, &value)) {
            continue;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // tokio-postgres does not split a list of hosts in a `host` parameter, so each host becomes a parameter of its
        // own.
        for value in value.split(',').filter(|_| name == "host").chain(Some(value).filter(|_| name != "host")) {
            let _ = write!(rest, "{mark}{name}={value}");
            mark = '&';
        }
    }
    (rest, own)
}

/// Splits a text into `key=value` pairs. The pairs keep their quotes and backslashes.
fn split_pairs(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    let mut before = ' ';
    text.split(move |c: char| {
        let ends = c.is_whitespace() && !quoted && !escaped;
        // A quote inside an unquoted value is an ordinary character.
        quoted ^= c == '\'' && !escaped && (quoted || before == '=');
        escaped = c == '\\' && !escaped;
        before = c;
        ends
    })
    .filter(|word| !word.is_empty())
}

fn accept_own_pair(word: &str, own: &mut UrlParameters) -> bool {
    let Some((name, value)) = word.split_once('=') else { return false };
    let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
    let mut plain = String::new();
    let mut escaped = false;
    for c in value.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            plain.push(c);
        }
    }
    own.accept(name, &plain)
}

#[derive(Clone, Copy, PartialEq)]
enum TlsMode {
    /// `sslmode` is missing, `prefer` or `allow`: accepted only if all servers are local.
    Unspecified,
    /// `sslmode` is `disable`: no TLS, for local and remote servers.
    Disable,
    Tls(CertVerification),
}

impl TlsMode {
    /// Determines the TLS mode from `sslmode` and `sslrootcert`. As in libpq, `require` with authorities means
    /// `verify-ca`, and the authorities of the system need `verify-full`.
    fn of(own: &UrlParameters) -> Result<Self> {
        let mode = own.get("sslmode");
        let roots = own.get("sslrootcert");
        if roots == Some("system") && !matches!(mode, None | Some("verify-full")) {
            return Err(url_error("sslrootcert: system needs sslmode=verify-full"));
        }
        Ok(match mode {
            None if roots == Some("system") => Self::Tls(CertVerification::ChainAndName),
            None | Some("prefer" | "allow") => Self::Unspecified,
            Some("disable") => Self::Disable,
            Some("require") if roots.is_none() => Self::Tls(CertVerification::Nothing),
            Some("require" | "verify-ca") => Self::Tls(CertVerification::Chain),
            Some("verify-full") => Self::Tls(CertVerification::ChainAndName),
            Some(_) => return Err(url_error("sslmode: must be disable, require, verify-ca or verify-full")),
        })
    }
}

fn tls_files(mode: TlsMode, own: &UrlParameters) -> Result<Option<PostgresTlsFiles>> {
    let file = |name| own.get(name).filter(|value: &&str| !value.is_empty());
    let TlsMode::Tls(verify) = mode else {
        let unused = ["sslrootcert", "sslcert", "sslkey"].into_iter().find(|name| file(name).is_some());
        return match unused {
            Some(name) => Err(url_error(&format!("{name}: needs sslmode=verify-full, verify-ca or require"))),
            None => Ok(None),
        };
    };
    let roots = match file("sslrootcert") {
        Some("system") => Some(TrustRoots::System),
        Some(path) => Some(TrustRoots::File(path.into())),
        None if verify == CertVerification::Nothing => None,
        None => {
            return Err(url_error(
                "sslrootcert: must be given with sslmode=verify-ca or verify-full: a PEM file, or system",
            ));
        }
    };
    let client = match (file("sslcert"), file("sslkey")) {
        (Some(certificate), Some(key)) => {
            Some(ClientCertificateFiles { certificate: certificate.into(), key: key.into() })
        }
        (None, None) => None,
        (Some(_), None) => return Err(url_error("sslkey: must be given with sslcert")),
        (None, Some(_)) => return Err(url_error("sslcert: must be given with sslkey")),
    };
    Ok(Some(PostgresTlsFiles { verify, roots, client }))
}

/// A host of the URL, with its IP address if the URL also has `hostaddr`.
struct HostAddress<'c> {
    host: Option<&'c Host>,
    number: Option<IpAddr>,
    port: u16,
}

fn host_addresses(all: &Config) -> Result<Vec<HostAddress<'_>>> {
    let hosts = all.get_hosts();
    let numbers = all.get_hostaddrs();
    let ports = all.get_ports();
    let count = hosts.len().max(numbers.len());
    if count == 0 || hosts.iter().any(|host| *host == Host::Tcp(String::new())) {
        return Err(url_error("must name a host, or the folder of a unix socket"));
    }
    if count > MAX_HOSTS {
        return Err(url_error(&format!("must not name more than {MAX_HOSTS} hosts")));
    }
    if !(hosts.is_empty() || numbers.is_empty() || hosts.len() == numbers.len()) {
        return Err(url_error("hostaddr: must have one address per host"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(url_error("port: must be one port, or one per host"));
    }
    let port = |n| ports.get(n).or(ports.first()).copied().unwrap_or(5432);
    Ok((0..count).map(|n| HostAddress { host: hosts.get(n), number: numbers.get(n).copied(), port: port(n) }).collect())
}

impl HostAddress<'_> {
    /// Returns `true` for a unix socket or a loopback address.
    fn is_local(&self) -> bool {
        match (self.number, self.host) {
            (Some(number), _) => number.is_loopback(),
            (None, Some(Host::Tcp(name))) => {
                name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
            (None, Some(Host::Unix(_)) | None) => true,
        }
    }

    fn server(&self, common: &Config, shows_certificate: bool) -> PostgresServer {
        let mut config = common.clone();
        let mut name = String::new();
        if let Some(number) = self.number {
            config.hostaddr(number);
            name = number.to_string();
        }
        match self.host {
            Some(Host::Tcp(host)) => {
                config.host(host);
                name.clone_from(host);
            }
            Some(Host::Unix(folder)) => {
                config.host_path(folder);
                name = folder.display().to_string();
            }
            None => {}
        }
        config.port(self.port);
        PostgresServer { config, name: format!("{name}:{}", self.port), shows_certificate }
    }
}

/// Checks that the requested `sslmode` is possible and safe for every host.
fn check_hosts(addresses: &[HostAddress<'_>], tls: bool, mode: TlsMode) -> Result<()> {
    for address in addresses {
        match address.host {
            Some(Host::Unix(_)) if tls => return Err(url_error("sslmode: a unix socket has no TLS")),
            None if tls => return Err(url_error("hostaddr: TLS also needs host, the name of the server")),
            _ if mode == TlsMode::Unspecified && !address.is_local() => {
                return Err(url_error(
                    "a host that is not on the loopback needs sslmode=verify-full (or verify-ca, require), or \
                     sslmode=disable on a network that you trust",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Parses `tcp_user_timeout` in milliseconds, as in libpq; 0 means the system default.
fn parse_tcp_user_timeout(own: &UrlParameters) -> Result<Duration> {
    let Some(text) = own.get("tcp_user_timeout") else { return Ok(TCP_IDLE_TIMEOUT) };
    let millis =
        text.trim().parse::<i32>().map_err(|_| url_error("tcp_user_timeout: must be a number of milliseconds"))?;
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// Returns the connection settings that all servers of the URL share.
fn shared_config(all: &Config, tls: bool, tcp_user_timeout: Duration) -> Config {
    let mut config = Config::new();
    config
        .ssl_mode(if tls { SslMode::Require } else { SslMode::Disable })
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(all.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT).min(SESSION_TIMEOUT))
        .tcp_user_timeout(tcp_user_timeout)
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle().min(TCP_IDLE_TIMEOUT))
        .keepalives_interval(all.get_keepalives_interval().unwrap_or(TCP_IDLE_TIMEOUT / 5))
        .keepalives_retries(all.get_keepalives_retries().unwrap_or(3))
        .application_name(all.get_application_name().unwrap_or("signet"));
    all.get_user().map(|user| config.user(user));
    all.get_password().map(|password| config.password(password));
    all.get_dbname().map(|name| config.dbname(name));
    all.get_options().map(|options| config.options(options));
    config
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn socket_and_loopback_urls_need_no_sslmode() {
        for text in [
            "postgres://signet@localhost/signet",
            "postgresql://signet:pw@127.0.0.1:5433/signet?connect_timeout=1",
            "postgres://signet@[::1]/signet?sslmode=prefer",
            "postgres:///signet?host=/run/postgresql&user=signet",
            "host=/run/postgresql user=signet dbname=signet",
            "postgres://signet@db.internal/signet?sslmode=disable",
            "postgres://signet@localhost:1,127.0.0.1:2/signet?target_session_attrs=read-write",
        ] {
            let url = PostgresUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(url.tls().is_none());
            assert!(url.0.servers.iter().all(|server| server.config.get_ssl_mode() == SslMode::Disable));
        }
    }

    #[test]
    fn sslmode_values_match_libpq() {
        for (parameters, verify) in [
            ("sslmode=require", CertVerification::Nothing),
            ("sslmode=require&sslrootcert=/ca.pem", CertVerification::Chain),
            ("sslmode=verify-ca&sslrootcert=/ca.pem", CertVerification::Chain),
            ("sslrootcert=/ca.pem&sslmode=verify-full", CertVerification::ChainAndName),
            ("sslmode=verify-full&sslrootcert=system", CertVerification::ChainAndName),
            ("sslrootcert=system", CertVerification::ChainAndName),
            ("sslmode=disable&ssl%6Dode=verify-full&sslrootcert=%2Fa+b", CertVerification::ChainAndName),
        ] {
            let url = PostgresUrl::parse(&format!("postgres://u:p?@db/d?{parameters}&connect_timeout=3"))
                .unwrap_or_else(|error| panic!("{parameters}: {error}"));
            assert_eq!(url.tls().unwrap().verify, verify, "{parameters}");
            let server = &url.0.servers[0].config;
            assert_eq!((server.get_ssl_mode(), server.get_password()), (SslMode::Require, Some(&b"p?"[..])));
            if let Some(TrustRoots::File(path)) = &url.tls().unwrap().roots {
                assert!(["/ca.pem", "/a+b"].contains(&path.to_str().unwrap()));
            }
        }
        let pairs = "host='db' sslmode = 'prefer'  sslmode=verify-full sslrootcert='/a b/it\\'s' password='a=b c'";
        let pairs = pairs.replace(" = ", "=");
        let url = PostgresUrl::parse(&pairs).ok().unwrap();
        let Some(TrustRoots::File(path)) = &url.tls().unwrap().roots else { panic!() };
        assert_eq!(path.to_str(), Some("/a b/it's"));
        assert_eq!(url.0.servers[0].config.get_password(), Some(&b"a=b c"[..]));
    }

    #[test]
    fn each_host_of_a_url_is_a_separate_server() {
        let url = "postgres://u@a,b:7,c/d?sslmode=disable&application_name=x&target_session_attrs=primary";
        let url = PostgresUrl::parse(url).ok().unwrap();
        let names: Vec<_> = url.0.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a:5432", "b:7", "c:5432"]);
        for server in &url.0.servers {
            let config = &server.config;
            assert_eq!((config.get_hosts().len(), config.get_ports().len()), (1, 1));
            assert_eq!((config.get_user(), config.get_dbname()), (Some("u"), Some("d")));
            assert_eq!(config.get_application_name(), Some("x"));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        let folders = PostgresUrl::parse("postgres:///d?host=/a,/b&port=1,2&user=u").ok().unwrap();
        let names: Vec<_> = folders.0.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["/a:1", "/b:2"]);
        let number = PostgresUrl::parse("host=db hostaddr=127.0.0.1 sslmode=require").ok().unwrap();
        assert_eq!((number.0.servers.len(), number.0.servers[0].name.as_str()), (1, "db:5432"));
    }

    #[test]
    fn url_timeouts_use_the_units_of_libpq() {
        let of = |parameters: &str| {
            let url = PostgresUrl::parse(&format!("postgres://u@localhost/d?{parameters}"));
            let config = url.unwrap_or_else(|error| panic!("{parameters}: {error}")).0.servers[0].config.clone();
            (config.get_connect_timeout().copied().unwrap(), config.get_tcp_user_timeout().copied().unwrap())
        };
        let millis = Duration::from_millis;
        for (parameters, connect, tcp_user_timeout) in [
            ("", CONNECT_TIMEOUT, TCP_IDLE_TIMEOUT),
            ("tcp_user_timeout=7000", CONNECT_TIMEOUT, millis(7000)),
            ("tcp_user_timeout=0", CONNECT_TIMEOUT, millis(0)),
            ("tcp_user_timeout=-1", CONNECT_TIMEOUT, millis(0)),
            ("connect_timeout=3", millis(3000), TCP_IDLE_TIMEOUT),
            ("connect_timeout=0&tcp_user_timeout=1500", CONNECT_TIMEOUT, millis(1500)),
            ("connect_timeout=60", SESSION_TIMEOUT, TCP_IDLE_TIMEOUT),
        ] {
            assert_eq!(of(parameters), (connect, tcp_user_timeout), "{parameters}");
        }
        assert!(CONNECT_TIMEOUT * 3 < SESSION_TIMEOUT, "two dead addresses of a name leave time for the third");
    }

    #[test]
    fn url_errors_name_the_problem_without_quoting_the_url() {
        let of_form = "must be of the form";
        for (text, says) in [
            ("postgres://signet:hunter2@db.internal/signet", "needs sslmode=verify-full"),
            ("postgres://signet:hunter2@localhost,db.internal/signet", "needs sslmode=verify-full"),
            ("postgres://signet:hunter2@10.0.0.7/signet?sslmode=prefer", "needs sslmode=verify-full"),
            ("postgres://signet:hunter2@db/signet?sslmode=allow", "needs sslmode=verify-full"),
            ("postgres://signet:hunter2@db/signet?sslmode=hunter2", "sslmode: must be disable, require"),
            ("postgres://signet:hunter2@db/signet?sslmode=verify-full", "sslrootcert: must be given"),
            ("host=localhost sslmode=verify-ca password=hunter2", "sslrootcert: must be given"),
            ("host=localhost sslmode = require password=hunter2", of_form),
            ("postgres://db/d?sslmode=verify-ca&sslrootcert=system", "system needs sslmode=verify-full"),
            ("postgres://localhost/d?sslrootcert=/ca.pem", "sslrootcert: needs sslmode"),
            ("postgres://localhost/d?sslmode=disable&sslcert=/c.pem&sslkey=/k.pem", "sslcert: needs sslmode"),
            ("postgres://db/d?sslmode=require&sslcert=/c.pem", "sslkey: must be given with sslcert"),
            ("postgres://db/d?sslmode=require&sslkey=/k.pem", "sslcert: must be given with sslkey"),
            ("postgres:///d?host=/run/postgresql&sslmode=require", "a unix socket has no TLS"),
            ("hostaddr=10.0.0.1 sslmode=require user=hunter2", "hostaddr: TLS also needs host"),
            ("postgres:///d?host=a,,b&sslmode=disable", "must name a host"),
            ("postgres://localhost/d?channel_binding=require", "channel_binding: require needs sslmode"),
            ("postgres://db/d?sslmode=require&channel_binding=hunter2", "channel_binding: invalid value"),
            ("postgres://db:hunter2/d?sslmode=require", "port: invalid value"),
            ("postgres://localhost/d?target_session_attrs=read-only", "target_session_attrs: must be read-write"),
            ("postgres://localhost/d?load_balance_hosts=random", "load_balance_hosts: must be disable"),
            ("postgres://localhost/d?sslcrl=/crl.pem", "sslcrl: unknown or unsupported parameter"),
            ("postgres://localhost/d?hunter2=7", "?: unknown or unsupported parameter"),
            ("postgres://localhost/d?tcp_user_timeout=7s", "tcp_user_timeout: must be a number of milliseconds"),
            ("postgres://localhost/d?passfile=/pass", "passfile: needs a user"),
            ("host=/run/postgresql user='' passfile=/pass", "passfile: needs a user"),
            ("postgres://a,b/d?sslmode=disable&hostaddr=10.0.0.1", "hostaddr: must have one address per host"),
            ("host=a,b,c port=1,2 sslmode=disable", "port: must be one"),
            ("postgres://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/d?sslmode=disable", "more than 16 hosts"),
            ("postgres://signet:hunter2@/signet", "must name a host"),
            ("postgres://signet:hunter2@a,,b/signet?sslmode=disable", "must name a host"),
            ("mysql://signet:hunter2@localhost/signet", of_form),
            ("hunter2", of_form),
        ] {
            let error = PostgresUrl::parse(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.text().starts_with("database URL: ") && error.text().contains(says), "{text}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_enables_tls_only_on_request(text in "(postgres://|host=a )?\\PC{0,60}") {
            if let Ok(url) = PostgresUrl::parse(&text) {
                let tls = url.tls().is_some();
                prop_assert!(!tls || text.contains("ssl"));
                let mode = if tls { SslMode::Require } else { SslMode::Disable };
                prop_assert!(url.0.servers.iter().all(|server| server.config.get_ssl_mode() == mode));
            }
        }

        #[test]
        fn quoted_url_value_is_parsed_exactly(value in "[a-z '\\\\=]{1,12}") {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            let url = PostgresUrl::parse(&format!("host=db sslmode=require sslrootcert='{quoted}' user=u"));
            let url = url.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let Some(TrustRoots::File(path)) = &url.tls().unwrap().roots else { return Err(TestCaseError::fail("none")) };
            prop_assert_eq!(path.to_str().unwrap(), value);
            prop_assert_eq!(url.0.servers[0].config.get_user(), Some("u"));
        }
    }
}
