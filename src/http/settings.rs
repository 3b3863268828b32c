//! The settings of both wires: limits of requests, what known clients expect, whose headers are believed.

use std::time::Duration;

use ipnet::IpNet;

use crate::pki::serials::SerialNumbers;

/// Settings of both wires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accept the header names and verbs of known clients beside the contract's own.
    pub compat: bool,
    /// Largest body, bytes.
    pub max_body: usize,
    /// Most bytes of bodies that are held at once.
    pub max_bodies_in_flight: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a request may take once it has arrived.
    pub max_duration: Duration,
    /// Whether `/metrics` needs no token.
    pub open_metrics: bool,
    /// Scheme and authority of absolute links, such as `https://signet.example`; by default those of the
    /// listener.
    pub external_url: Option<String>,
    /// Scheme and authority by which relying parties reach the public listener, such as `http://pki.example`; by
    /// default those that it is bound to.
    pub public_url: Option<String>,
    /// Requests per second that a user of the projects API may make; 0 is no limit.
    pub projects_rate_limit: u32,
    /// What the serial numbers of new certificates begin with.
    pub serial_numbers: SerialNumbers,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl Default for Settings {
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
            serial_numbers: SerialNumbers::default(),
            trusted_proxies: Vec::new(),
        }
    }
}
