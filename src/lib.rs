//! Signet: an actor-based signing server. This page describes its architecture, and each module documents its own part.
//! `docs/architecture/` has diagrams and the reasons for the main decisions.
//!
//! One process serves two APIs: the secrets service (`/v1`), a certificate authority with tokens, policies and mounts;
//! and the projects API (`/api/v2`) with organizations, teams, projects and workspaces. HTTP handlers send requests to
//! actors, and actors own state. Short CPU work runs on the HTTP worker that received the request, because a message to
//! another thread costs as much as a signature. Longer CPU work and TLS handshakes run in one fair queue
//! ([`rationing::cpu`]).
//!
//! # Modules
//!
//! ```text
//! cli             the command line: setup, dev, serve, operator …, check, issue, renew, import, status, …
//! config          all settings, with their defaults, environment variables and validation
//! server          the composition root: opens stores, starts actors, binds listeners (TLS, HTTP/2), drains
//! http            the two APIs: http/secrets has one pipeline and a route table per kind of mount,
//!                 http/jsonapi has another pipeline and a route table per resource
//! auth            tokens, policies, logins, identities, the mount table, quotas
//! pki             the certificate authority engine, with layers of its own
//! mounts          the lifecycle of mounts: opens, reloads and closes them
//! audit           entries about requests and responses, and the devices that record them
//! projects        the projects API: the rules and the SQL of each resource
//! nodes           nodes that share a database: follows the changes of other nodes
//! keys, keyring   private keys, local or in a device or service; the data keys that seal stored values
//! x509            encoding and decoding; the only module that knows ASN.1
//! storage         group commit, the embedded store, PostgreSQL, sealing
//! telemetry       the metric catalogue, the exporter, the logs
//! sql             sessions of a relational store, for domains that write their own SQL
//! outbound        outgoing HTTP calls, within an egress policy
//! rationing       limits on shared resources with a limit per caller, and the queue for CPU work
//! jose            signed JSON objects (JWS) and public keys as JSON (JWK)
//! shared by all   caller_network clock derived_values documents error fields files random secret templates tls
//!                 users
//! ```
//!
//! `foo.rs` has the documentation and the public interface of a module, `foo/` its parts. Dependencies point in one
//! direction: `http` → `mounts` → domains (`pki`, `auth`, `keys`, `projects`) → `x509` → `error`. `storage` implements
//! the traits in the domains' `store.rs`, and only [`server`] and the commands name it. Actix is used in `actor.rs`
//! files, actix-web in `http` and `server`. `tests/it/architecture.rs` enforces these rules.
//!
//! # Actors
//!
//! | actor | instances | owns | never |
//! |---|---|---|---|
//! | control ([`pki::actor`]) | one per mount | the mount's roles, issuers, keys, settings and CRL state; only it publishes the mount's view | parses, encodes or signs in a handler |
//! | replica ([`pki::actor`]) | one per mount on each HTTP worker | a handle to the published view | keeps state between requests; stops after a panic |
//! | signer ([`keys::actor`]) | one per managed key | the permits and sessions of the key's backend, and the job queue | works for a disconnected caller; returns a signature that does not verify |
//! | commit ([`storage::commit`]) | one per store | the queue of writes and the database connection that writes | fails a valid unit because of another unit in its batch |
//!
//! A *view* ([`pki::mount::view`]) is the state of a mount, prepared for issuing and immutable. Readers load it with
//! one atomic operation. Policies and the mount table are published in the same way. Tokens are indexed rows behind a
//! bounded cache.
//!
//! RSA keys come from two low-priority threads, one per class of key sizes, or from a stock ([`keys::pool`]). CPU work
//! of more than 0.5 ms runs in the CPU queue, CRL builds run on blocking threads. Only the calling request waits for a
//! remote signer: it occupies no actor, thread or build permit while it waits. Each queue is limited by permits or a
//! fixed length, not by an actix mailbox.
//!
//! # The pipeline of a request
//!
//! [`http::secrets`] runs one pipeline: limits on path and headers → route → quota → caller (token, policies of the
//! path) → body → authorization (token, policies, fields) → audit of the intent → handler → audit of the outcome →
//! rendering. Refused requests are audited too ([`audit`]). The body of an unauthorized request is discarded. Request
//! bodies ([`http::body`]) and unsent responses ([`http::response_budget`]) have memory budgets. Each worker divides
//! its time fairly among senders ([`http::fair_scheduler`]). Pipeline, metrics and tests use the same route tables. All
//! errors have one type ([`error::Error`]) with a kind, a text for the caller and a cause for the log; each API maps
//! the kinds to status codes.
//!
//! # Three requests
//!
//! `POST /v1/pki/issue/web` issues a certificate with a new key:
//!
//! 1. The pipeline resolves mount and route, reads the token (cached for one second) and requires
//!    `update` from its policies. The handler reads the fields (`http/secrets/pki/issuing/fields.rs`) and sends the
//!    request ([`pki::issue::request`]) to the replica on the same worker.
//! 2. The replica loads the view once and runs [`pki::issue`]. It validates names ([`pki::check::names`]) and dates
//!    ([`pki::check::validity`]) against the role, which yields a draft (`pki/issue/release.rs`).
//! 3. It obtains the key and the serial number, and encodes the to-be-signed bytes ([`x509::tbs`]) from pre-encoded
//!    [`x509::pieces`]. The bytes are parsed again and validated against RFC 5280 and the chain's name constraints
//!    (`pki/check/structure.rs`, [`pki::constraints`]). The result is a `LintedTbs`, the only type that keys sign,
//!    for certificates and CRLs alike. A local EC key signs in tens of microseconds, on the worker.
//! 4. The record goes to the commit actor. Records that arrive during a commit share the next one.
//! 5. After that commit is durable, the certificate is released ([`pki::issue::issued`]) and rendered
//!    (`http/secrets/pki/rendering.rs`). A role with `no_store` needs no record of the certificate.
//!
//! `POST /v1/pki/roles/web` changes a role:
//!
//! 1. After the pipeline, [`pki::ca::changes`] sends a plan to the control actor. The plan derives the new role from
//!    the body and, for a patch, from the stored role.
//! 2. The control actor runs one change at a time. In the CPU queue, the plan computes the next view and the documents
//!    to store, or fails with an error that names field and rule.
//! 3. The documents are sealed ([`storage::seal`]) and committed with compare-and-set on their version.
//! 4. The next view is published, and then the client gets the response. So each client reads its own writes, on all
//!    workers of the node. Requests that loaded the previous view finish with it.
//!
//! `POST /v1/pki/revoke` revokes a certificate:
//!
//! 1. [`pki::revocation::revoke`] finds the certificate by serial number, or parses the one in the request.
//! 2. A row with the next number of the mount's revocation sequence is committed. From then on the certificate is
//!    revoked, even if the CRL build fails or the client disconnects.
//! 3. The control actor lends its builder ([`pki::crl`]) to one build, which reads the new rows and signs a list of
//!    encoded entries. Requests that arrive during a build share the next one.
//! 4. The CRL is published, and then the client gets the response, so a CRL that is fetched later lists the serial
//!    number. With `auto_rebuild` the response does not wait, and a timer starts the build.
//!
//! A request of the projects API is one session of the store ([`projects::Projects::run`]). The caller's rights are
//! read in the transaction that changes the rows. A violated constraint is a [rejection](projects::rejection).
//!
//! # Where rules live
//!
//! | rule | place |
//! |---|---|
//! | names in a certificate | [`pki::check::names`] |
//! | start and end of a certificate | [`pki::check::validity`] |
//! | fields of a role, and checks on a write | [`pki::mount::role`], `http/secrets/pki/roles/members.rs` |
//! | extensions and their order | [`pki::mount::profile`], `x509/extension.rs` |
//! | permitted content of signed names and extensions | [`x509::profile`], called by `pki/check/structure.rs` |
//! | serial numbers | [`pki::serials`] |
//! | rows stored with a certificate; idempotent requests | [`pki::issue::side_effects`], [`pki::issue::idempotency`], [`pki::revocation::leases`] |
//! | signatures by managed keys, and their verification | [`keys::signing`], called by `pki/check/linted_tbs.rs` |
//! | the issuer that signs, and whether it may | [`pki::mount::view`], `pki/issue/signer.rs` |
//! | imports | [`pki::ca::import`], `pki/ca/bundle.rs`, [`pki::revocation::crl_import`] |
//! | decisions of an external policy engine | [`pki::issue::external_policy`] |
//! | content and time of CRLs; OCSP | [`pki::crl`], [`pki::revocation::ocsp`] |
//! | removal of expired data | [`pki::tidy`] |
//! | managed keys and the mounts that may use them; recovery from device errors | [`keys::managed`], `keys/pkcs11/recovery.rs` |
//! | data keys and the seal key | [`keyring`], [`keys::seal`] |
//! | grants of a policy and their explanation; paths that need `sudo` | [`auth::policy`], [`http::secrets::sudo`] |
//! | lifetime of a token; its identity | `auth/token/ttl.rs`, [`auth::identity`], [`templates`] |
//! | paths and types of mounts; opening and closing | [`auth::mounts`], [`mounts`] |
//! | paths and fields of requests | the `ROUTES` tables of [`http::secrets`], `http/secrets/pki/request_fields.rs`, [`pki::check::request`] |
//! | lenient decoding; durations and times; long lists | [`fields`], [`clock`], [`http::long_lists`] |
//! | types in responses, by client | [`http::secrets::dialect`] |
//! | access to projects; rights that a member may grant | [`projects::rights`], [`projects::team_access`], [`projects::escalation`] |
//! | the caller's address, proxies, rate limits | [`http::address`], [`caller_network`], [`auth::quotas`] |
//! | limits of connections and of HTTP/2; `100 Continue`; compression | `server/connections.rs`, `server/http2.rs`, `server/expect.rs`, [`http::encoding`] |
//! | renewal of the listener's certificate; operator commands; checks of a backup | [`server::renewal`], [`server::operator`], [`server::verify`] |
//! | metrics; settings | [`telemetry::catalogue`], [`config`] |
//!
//! # Invariants
//!
//! - Every signature has two steps: encode the to-be-signed bytes, then call a signer.
//! - A certificate leaves the server only after its record is durable. A failed request leaves nothing half-done. The
//!   write of a request may be complete although the store answers with a 503, so every write is safe to repeat.
//! - Secrets are types without `Debug` ([`secret`]). Tokens and accessors are stored as hashes, other secrets are
//!   sealed. `tests/it/canary.rs` searches all outputs and files for secrets.
//! - Time and the randomness of serial numbers are parameters ([`clock::Clock`]).

pub mod audit;
pub mod auth;
pub mod caller_network;
pub mod cli;
pub mod clock;
pub mod config;
pub mod derived_values;
pub mod documents;
pub mod error;
pub mod fields;
pub mod files;
pub mod http;
mod jose;
pub mod keyring;
pub mod keys;
pub mod mounts;
pub mod nodes;
pub mod outbound;
pub mod pki;
pub mod projects;
pub mod random;
pub mod rationing;
pub mod secret;
pub mod server;
pub mod sql;
pub mod storage;
pub mod telemetry;
pub mod templates;
pub mod tls;
pub mod users;
pub mod x509;
