//! Settings of both APIs: request limits, compatibility, trusted proxies.

use std::time::Duration;

use ipnet::IpNet;

use crate::pki::serials::SerialPrefix;

/// Settings of both APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// `true` to accept the header names, methods and types of known clients in addition to those of this server's own
    /// API.
    pub compat: bool,
    /// Maximum size of a request body, in bytes.
    pub max_body: usize,
    /// Maximum total size of request bodies in memory, in bytes.
    pub max_bodies_in_flight: usize,
    /// Maximum time for a request body to arrive.
    pub body_timeout: Duration,
    /// Maximum time to handle a request after it has been received.
    pub max_duration: Duration,
    /// `true` if `/metrics` needs no token.
    pub open_metrics: bool,
    /// Scheme and authority of absolute links, such as `https://signet.example`. By default, those of the listener.
    pub external_url: Option<String>,
    /// Scheme and authority by which relying parties reach the public listener, such as `http://pki.example`. By
    /// default, those of the listener's address.
    pub public_url: Option<String>,
    /// Maximum number of requests per second and subject of the projects API; 0 disables the limit.
    pub projects_rate_limit: u32,
    /// Prefix of the serial numbers of new certificates: the time of issuance, or none.
    pub serial_numbers: SerialPrefix,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            compat: true,
            max_body: 4 << 20,
            max_bodies_in_flight: 256 << 20,
            body_timeout: Duration::from_secs(30),
            max_duration: Duration::from_secs(90),
            open_metrics: false,
            external_url: None,
            public_url: None,
            projects_rate_limit: 0,
            serial_numbers: SerialPrefix::default(),
            trusted_proxies: Vec::new(),
        }
    }
}
