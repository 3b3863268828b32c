//! The scenarios of the command line.

use clap::ValueEnum;

/// The request that a run repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// No requests: only fills the store to the numbers of `--preload` and `--revoked`.
    Preload,
    /// `pki/issue`: the server generates key and certificate.
    Issue,
    /// `pki/sign`: the server certifies keys generated here (CSRs).
    Sign,
    /// `sign` by an issuer with a managed key, compared with an issuer with a software key: RSA-2048 and P-256 keys in
    /// SoftHSM (needs `--server`), or `--managed-key` of a running server.
    SignManaged,
    /// `pki/revoke` for `--requests` certificates that are not revoked yet; missing certificates are issued first.
    /// `--preload` and `--revoked` set the initial numbers.
    Revoke,
    /// Cost of a revocation with a long CRL compared with a short one, and the start time with the long one; both have
    /// limits. Needs `--server`. Defaults: 1,000,000 revoked certificates (`--revoked`), 10,000 requests
    /// (`--requests`).
    Crl,
    /// `pki/issue`, with additional clients (`--rsa-clients`) that request RSA-2048 keys.
    Mixed,
    /// `pki/ocsp` in four parts of `--requests` each: GET and POST, with and without a nonce, for the certificates of
    /// the mount.
    Ocsp,
    /// `pki/issue` alone, and while other clients send oversized requests of 4 MB: its p99 may be at most three times
    /// its value alone, and the oversized requests must be rejected. Needs `--server`.
    Oversize,
    /// `auth/token/lookup-self` with one token, alone and while 50 connections (`--clients`) of another token repeat
    /// long requests. Each kind runs for `--seconds`; the p99 limit is 50 ms. Needs `--server`.
    Crowd,
    /// `pki/issue` with one token, alone and while 64, 256 and 900 connections (or `--clients`) of another token repeat
    /// one expensive request. Each kind runs for `--seconds`; the p99 may be three times its value alone or 20 ms, and
    /// server memory 300 MiB. Needs `--server`.
    Attack,
    /// GET of the complete CRL.
    CrlGet,
    /// `pki/ocsp` by GET without a nonce: responses can be cached.
    OcspGet,
    /// `pki/ocsp` by GET with a nonce: every response is signed.
    OcspNonce,
    /// `sys/health` without a token: the cost of HTTP alone.
    #[default]
    Health,
    /// `auth/jwt/login` with an RS256 token: the CPU per login may exceed that of the signature verification by at most
    /// 45 µs. Default: 400,000 requests.
    Login,
    /// `pki/issue` on one node and on two nodes with one PostgreSQL, alternating. With as many clients on each node,
    /// the CPU per certificate (database included) may be 1.1 times that of one node. Needs `--server` and
    /// `--postgres`.
    Nodes,
    /// The projects API with a million projects and workspaces (`--preload`): lists, show and moves, each with a p99
    /// limit of 20 ms. Default: 16 clients. Needs `--server` and `--postgres`.
    Projects,
}

impl Scenario {
    /// Returns the name used on the command line and in plans.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// `true` if the requests need a mount.
    pub(crate) fn needs_mount(self) -> bool {
        !matches!(self, Self::Health | Self::Login | Self::SignManaged)
    }

    /// `true` if the scenario can use an existing mount without creating anything.
    pub(crate) fn accepts_prepared(self) -> bool {
        matches!(self, Self::Ocsp | Self::OcspGet | Self::OcspNonce | Self::CrlGet | Self::Health) || self.needs_role()
    }

    /// `true` if the requests issue certificates by a role.
    pub(crate) fn needs_role(self) -> bool {
        matches!(self, Self::Issue | Self::Sign | Self::Mixed | Self::Revoke | Self::Preload)
    }

    /// `true` if the scenario determines its own load and has no runs with charts.
    pub(crate) fn has_own_load(self) -> bool {
        matches!(
            self,
            Self::Crl
                | Self::SignManaged
                | Self::Oversize
                | Self::Crowd
                | Self::Attack
                | Self::Projects
                | Self::Preload
        )
    }
}
