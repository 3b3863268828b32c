//! Validation of tokens that the tenant's directory issued.

use std::sync::Arc;

use url::Url;

use super::claims::CloudbClaims;
use super::config::EffectiveCloudbConfig;
use super::provider::METHOD_NAME;
use super::request::is_guid;
use crate::auth::login::verifier::{
    DiscoveryCheck, DiscoveryDocument, JwtRules, JwtTimeRules, JwtVerifier, KeySetSource, forbidden,
};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::jose::{CompactJws, JwsAlgorithm};
use crate::outbound::Outbound;

pub(super) struct CloudbDirectory {
    verifier: JwtVerifier,
    tenant: String,
    audiences: [String; 1],
}

impl CloudbDirectory {
    /// Creates the verifier for a tenant's tokens, without sending a request.
    pub(super) fn new(authority: &str, config: &EffectiveCloudbConfig, outbound: Outbound, clock: Clock) -> Self {
        let url = format!("{authority}/{}/.well-known/openid-configuration", config.tenant);
        let source = KeySetSource::Discovery { url, accepts: discovery_check(authority, &config.tenant) };
        let verifier = JwtVerifier::published(source, outbound, METHOD_NAME, clock);
        Self { verifier, tenant: config.tenant.clone(), audiences: [config.resource.clone()] }
    }

    /// Verifies a token that the directory issued for this service, and returns its claims.
    ///
    /// # Errors
    /// `Forbidden` for a rejected token; `Unavailable` when the directory's keys cannot be fetched.
    pub(super) async fn verify(&self, token: &CompactJws<'_>) -> Result<CloudbClaims> {
        let rules = JwtRules {
            algorithms: &[JwsAlgorithm::RS256],
            needs_kid: true,
            issuer: None,
            audiences: &self.audiences,
            times: JwtTimeRules::Strict,
        };
        let claims = self.verifier.verify(token, &rules).await?;
        let of_tenant = match claims.get("tid").map(serde_json::Value::as_str) {
            None => true,
            Some(None) => false,
            Some(Some(tid)) if is_guid(&self.tenant) => tid.eq_ignore_ascii_case(&self.tenant),
            Some(Some(tid)) => is_guid(tid) && has_segment(claims.text("iss").unwrap_or_default(), tid),
        };
        if !of_tenant {
            return Err(forbidden("the token was issued for another tenant"));
        }
        CloudbClaims::parse(claims.all())
    }
}

/// Returns a check of discovery documents: the issuer must name the tenant, and the key URL must have the directory's
/// origin.
fn discovery_check(authority: &str, tenant: &str) -> DiscoveryCheck {
    let authority = authority.to_owned();
    let tenant = tenant.to_owned();
    Arc::new(move |document: &DiscoveryDocument| {
        let is_of_tenant = match is_guid(&tenant) {
            true => has_segment(&document.issuer, &tenant),
            // A tenant can be configured by its domain, but the issuer contains its GUID, so any GUID is accepted.
            false => find_guid(&document.issuer).is_some(),
        };
        if !is_of_tenant {
            return Err(Error::invalid("\"issuer\" does not name the tenant"));
        }
        let origin_of = |url: &str| Url::parse(url).ok().map(|url| url.origin()).filter(|origin| origin.is_tuple());
        match origin_of(&document.jwks_uri) {
            Some(keys) if Some(keys.clone()) == origin_of(&authority) => Ok(()),
            _ => Err(Error::invalid("\"jwks_uri\" has another origin than the directory")),
        }
    })
}

/// `true` if the path of `url` contains the segment `segment`, in any letter case.
fn has_segment(url: &str, segment: &str) -> bool {
    path_segments(url).iter().any(|own| own.eq_ignore_ascii_case(segment))
}

fn find_guid(url: &str) -> Option<String> {
    path_segments(url).into_iter().find(|segment| is_guid(segment))
}

fn path_segments(url: &str) -> Vec<String> {
    let url = Url::parse(url).ok();
    let segments = url.as_ref().and_then(Url::path_segments);
    segments.map(|segments| segments.map(str::to_owned).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "3fd2a5bb-6a2b-4f2a-8d6e-00000000000a";

    fn discovery_error(tenant: &str, issuer: &str, jwks_uri: &str) -> Option<String> {
        let document = DiscoveryDocument { issuer: issuer.to_owned(), jwks_uri: jwks_uri.to_owned() };
        let accepts = discovery_check("https://login.example", tenant);
        accepts(&document).err().map(|error| error.text().to_owned())
    }

    #[test]
    fn discovery_requires_tenant_issuer_and_directory_key_url() {
        let (issuer, keys) = (format!("https://sts.example/{TENANT}/"), "https://login.example/common/keys");
        assert_eq!(discovery_error(TENANT, &issuer, keys), None);
        assert_eq!(discovery_error(&TENANT.to_uppercase(), &issuer, keys), None);
        assert_eq!(discovery_error("contoso.example", &issuer, keys), None);
        let other = "\"issuer\" does not name the tenant";
        for issuer in [
            "https://sts.example/3fd2a5bb-6a2b-4f2a-8d6e-00000000000b/",
            &format!("https://sts.example/x{TENANT}/"),
            &format!("https://sts.example/?{TENANT}"),
            &format!("https://{TENANT}.example/"),
            TENANT,
            "",
        ] {
            assert_eq!(discovery_error(TENANT, issuer, keys).as_deref(), Some(other), "{issuer}");
        }
        assert_eq!(
            discovery_error("contoso.example", "https://sts.example/contoso.example/", keys).as_deref(),
            Some(other)
        );
        for keys in [
            "https://evil.example/keys",
            "http://login.example/keys",
            "https://login.example:8443/keys",
            "https://login.example.evil.example/keys",
            "https://login.example@evil.example/keys",
            "keys",
            "data:,x",
        ] {
            let text = discovery_error(TENANT, &issuer, keys);
            assert_eq!(text.as_deref(), Some("\"jwks_uri\" has another origin than the directory"), "{keys}");
        }
    }
}
