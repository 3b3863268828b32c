# A certificate authority by the provider `vault`, and an organization of the projects API by the provider `tfe`.
# README.md has the commands.

terraform {
  required_version = ">= 1.5"
  required_providers {
    vault = {
      source  = "hashicorp/vault"
      version = ">= 4.0"
    }
    tfe = {
      source  = "hashicorp/tfe"
      version = ">= 0.60"
    }
  }
}

variable "address" {
  description = "URL of the server, such as https://signet.example.test:8200"
  type        = string
}

variable "token" {
  description = "Token of the secrets service (/v1); it may create mounts, roles and policies"
  type        = string
  sensitive   = true
}

variable "projects_token" {
  description = "User token of the projects API (/api/v2)"
  type        = string
  sensitive   = true
}

variable "public_url" {
  description = "URL of the public listener, which is written into certificates"
  type        = string
  default     = "http://pki.example.test"
}

provider "vault" {
  address = var.address
  token   = var.token
}

# The provider uses HTTPS only.
provider "tfe" {
  hostname = trimprefix(var.address, "https://")
  token    = var.projects_token
}

# The certificate authority. Its key stays in the server.

resource "vault_mount" "pki" {
  path                  = "terraform-pki"
  type                  = "pki"
  max_lease_ttl_seconds = 10 * 365 * 24 * 3600
}

resource "vault_pki_secret_backend_root_cert" "root" {
  backend     = vault_mount.pki.path
  type        = "internal"
  common_name = "Example Root CA"
  key_type    = "ec"
  key_bits    = 256
  ttl         = 10 * 365 * 24 * 3600
}

resource "vault_pki_secret_backend_config_urls" "urls" {
  backend                 = vault_mount.pki.path
  issuing_certificates    = ["${var.public_url}/v1/${vault_mount.pki.path}/ca"]
  crl_distribution_points = ["${var.public_url}/v1/${vault_mount.pki.path}/crl"]
  ocsp_servers            = ["${var.public_url}/v1/${vault_mount.pki.path}/ocsp"]
}

resource "vault_pki_secret_backend_crl_config" "crl" {
  backend                   = vault_mount.pki.path
  expiry                    = "72h"
  auto_rebuild              = true
  auto_rebuild_grace_period = "24h"
}

resource "vault_pki_secret_backend_role" "web" {
  backend          = vault_mount.pki.path
  name             = "web"
  allowed_domains  = ["example.test"]
  allow_subdomains = true
  allow_localhost  = false
  allow_ip_sans    = false
  key_type         = "ec"
  key_bits         = 256
  max_ttl          = 90 * 24 * 3600
  depends_on       = [vault_pki_secret_backend_root_cert.root]
}

# Clients send CSRs, so that no private key is in a response or in Terraform's state.
resource "vault_policy" "web" {
  name   = "sign-web"
  policy = <<-EOT
    path "${vault_mount.pki.path}/sign/${vault_pki_secret_backend_role.web.name}" {
      capabilities = ["update"]
    }
  EOT
}

# The projects API.

resource "tfe_organization" "acme" {
  name  = "acme"
  email = "ops@example.test"
}

resource "tfe_project" "payments" {
  organization = tfe_organization.acme.name
  name         = "Payments"
}

resource "tfe_team" "payments" {
  organization = tfe_organization.acme.name
  name         = "payments"
}

resource "tfe_team_project_access" "payments" {
  project_id = tfe_project.payments.id
  team_id    = tfe_team.payments.id
  access     = "maintain"
}

resource "tfe_workspace" "production" {
  organization = tfe_organization.acme.name
  project_id   = tfe_project.payments.id
  name         = "payments-production"
  tag_names    = ["payments", "production"]
}

output "root_certificate" {
  description = "The CA certificate, PEM"
  value       = vault_pki_secret_backend_root_cert.root.certificate
}
