//! Access tokens for Azure Key Vault.

use super::config::CloudBkeyvaultConfig;
use crate::error::Result;
use crate::keys::cloud::CloudServices;
use crate::outbound::cloudb::CloudbTokenRequest;
use crate::outbound::{AccessToken, RetryPolicy};

/// Requests a new token for the vault of a configuration.
///
/// # Errors
/// `BadGateway` when the credential is rejected, `Unavailable` without a response.
pub(super) async fn fetch(services: &CloudServices, config: &CloudBkeyvaultConfig) -> Result<AccessToken> {
    let azure = &services.settings.azure;
    let credential = CloudbTokenRequest {
        outbound: &services.outbound,
        authority: azure.authority_url.as_deref().unwrap_or(config.cloud()?.authority),
        imds: &azure.imds_url,
        tenant: &config.tenant_id,
        client_id: &config.client_id,
        client_secret: &config.client_secret,
        resource: &format!("https://{}", config.resource()),
        tries: RetryPolicy::FOUR_ATTEMPTS,
        error_prefix: super::config::TYPE_NAME,
    };
    credential.fetch().await
}
