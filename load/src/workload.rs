//! The objects of a scenario on the server, and the requests of its clients.

use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use crate::drive::{RequestClass, ServerAccess, drive};
use crate::figures::Figures;
use crate::ocsp_requests::CertificateRequests;
use crate::plan::{Plan, algorithm, has_certificate, issuing, role};
use crate::proc::WatchedProcesses;
use crate::scenario::Scenario;
use crate::{jwt_login, preload};

/// CSRs generated before a `sign` run; each is sent many times.
const DIFFERENT_CSRS: usize = 256;
/// Suffix of the role for RSA-2048 keys.
const RSA_SUFFIX: &str = "-rsa";

/// Prepares the server and runs the plan.
pub(crate) async fn run(plan: &Plan, admin: &ServerAccess<'_>, watched: WatchedProcesses) -> Result<Figures, String> {
    let (token, classes) = workload(plan, admin).await?;
    let access = ServerAccess { token: &token, ..*admin };
    drive(&access, classes, &plan.bounds(), watched).await
}

/// Creates the objects of the plan on the server. Returns the token and the classes of its clients.
pub(crate) async fn workload(plan: &Plan, admin: &ServerAccess<'_>) -> Result<(String, Vec<RequestClass>), String> {
    let open = |class: RequestClass| (String::new(), vec![class]);
    let clients = usize::from(plan.clients);
    let role = plan.role(admin);
    Ok(match plan.scenario {
        Scenario::Health => open(RequestClass::get("health", clients, "/v1/sys/health")),
        Scenario::CrlGet => open(complete_crl(admin, clients)),
        Scenario::OcspGet | Scenario::OcspNonce => {
            let requests = CertificateRequests::find(admin, usize::MAX).await?;
            open(requests.class(&Method::GET, plan.scenario == Scenario::OcspNonce, clients))
        }
        Scenario::Login => open(jwt_login::prepare(admin, clients).await?.0),
        Scenario::Issue | Scenario::Mixed => {
            let mut classes = vec![issuing(plan.name(), clients, admin.mount, role, plan.ttl())];
            if plan.scenario == Scenario::Mixed {
                let role = format!("{role}{RSA_SUFFIX}");
                classes.push(issuing("rsa 2048".to_owned(), plan.rsa_clients.into(), admin.mount, &role, plan.ttl()));
            }
            (prepare(plan, admin).await?, classes)
        }
        Scenario::Sign => {
            let bodies = (0..DIFFERENT_CSRS)
                .map(|i| csr(plan, i).map(|csr| Bytes::from(json!({ "csr": csr, "ttl": plan.ttl() }).to_string())))
                .collect::<Result<_, _>>()?;
            let path = admin.path(&format!("sign/{role}"));
            let class = RequestClass::post(plan.name(), clients, path, bodies, has_certificate);
            (prepare(plan, admin).await?, vec![class])
        }
        Scenario::Revoke | Scenario::Crl => {
            let token = prepare(plan, admin).await?;
            let serials = if plan.serials.is_empty() { serials(plan, admin).await? } else { plan.serials.clone() };
            (token, vec![preload::revoking("revoke".to_owned(), clients, admin.mount, serials)])
        }
        other => return Err(format!("{}: this scenario has its own command and no workload", other.name())),
    })
}

/// Returns the request bodies of a `revoke` run, and selects how the mount builds its CRLs.
async fn serials(plan: &Plan, admin: &ServerAccess<'_>) -> Result<Vec<Bytes>, String> {
    let (serials, _) = preload::revocation_bodies(admin, plan.max_requests(), plan.preload_role(), plan.quiet).await?;
    if !plan.prepared {
        preload::auto_rebuild(admin, plan.auto_rebuild).await?;
    }
    Ok(serials)
}

/// Creates roles, a policy of ten rules, and a token that has only that policy.
pub(crate) async fn prepare(plan: &Plan, admin: &ServerAccess<'_>) -> Result<String, String> {
    if plan.prepared {
        return Ok(admin.token.to_owned());
    }
    let mount = admin.mount;
    let name = plan.role(admin);
    let provisioner = admin.provisioner;
    provisioner.role(mount, name, &role(&plan.key_type, plan.key_bits, plan.no_store)).await?;
    if plan.scenario == Scenario::Mixed {
        provisioner.role(mount, &format!("{name}{RSA_SUFFIX}"), &role("rsa", 2048, plan.no_store)).await?;
    }
    let mut policy = String::new();
    for i in 0..6 {
        policy.push_str(&format!("path \"secret/team{i}/*\" {{ capabilities = [\"read\", \"list\"] }}\n"));
    }
    for path in [format!("issue/{name}"), format!("issue/{name}{RSA_SUFFIX}"), "revoke".to_owned(), "sign/+".to_owned()]
    {
        policy.push_str(&format!("path \"{mount}/{path}\" {{ capabilities = [\"update\"] }}\n"));
    }
    provisioner.policy(provisioner.name(), &policy).await?;
    provisioner.token(&json!({ "policies": [provisioner.name()], "ttl": plan.token_ttl() })).await
}

/// Returns clients that request the complete CRL.
pub(crate) fn complete_crl(access: &ServerAccess<'_>, clients: usize) -> RequestClass {
    RequestClass {
        plausible: |answer| answer[0] == 0x30,
        ..RequestClass::get("complete CRL", clients, access.path("crl"))
    }
}

fn csr(plan: &Plan, number: usize) -> Result<String, String> {
    let name = format!("load{number}.example.test");
    let key = rcgen::KeyPair::generate_for(algorithm(plan)?).map_err(|e| e.to_string())?;
    let mut params = rcgen::CertificateParams::new(vec![name.clone()]).map_err(|e| e.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serialize_request(&key).and_then(|csr| csr.pem()).map_err(|e| e.to_string())
}
