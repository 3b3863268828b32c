//! Signet: an actor-based signing server. This page is the architecture; each module's page has its part.
//!
//! One process speaks the secrets service (`/v1`): a certificate authority engine and the tokens, policies and mounts
//! around it; and the projects API (`/api/v2`): organizations, teams, projects, workspaces. HTTP handlers dispatch to
//! actors, actors own state, and short CPU work runs where the request already is: a message to another thread costs
//! as much as a signature. Longer CPU work and TLS handshakes run in one fair queue ([`fair_queue::cpu`]).
//!
//! # The tree
//!
//! ```text
//! main.rs, cli/   the command line: setup, dev, serve, operator …, check, issue, renew, import, status, …
//! config          every setting, its default, its environment name, its rule
//! server          the composition root: opens stores, starts actors, binds (TLS with HTTP/2 too), drains
//! http            the wires: http/secrets is one pipeline and one route table per kind of mount,
//!                 http/jsonapi another pipeline and one route table per resource
//! auth            tokens, policies, logins, identities, the mount table, quotas
//! pki             the certificate authority engine, on floors of its own
//! mounts          the life of mounts: opened, woken, followed and closed in one place
//! audit           what is asked and answered, told to devices
//! projects        the projects API: each resource's rules beside its SQL
//! nodes           nodes on one database: following what the others change
//! keys, keyring   private keys, here or in a device or service behind its actor; who may use which; data keys
//! x509            everything that knows ASN.1
//! storage         group commit, the embedded store, PostgreSQL, the seal
//! telemetry       the metric catalogue, the exporter, the logs
//! sql             sessions of a relational store, for domains that speak SQL themselves
//! outbound        HTTP to elsewhere, bounded
//! caller_network error clock fields documents secret random templates derived turns budget     what all of them share
//! ```
//!
//! `foo.rs` is the front door of a module, `foo/` its parts. Directions: `http` → `mounts` → domains (`pki`, `auth`,
//! `keys`, `projects`) → `x509` → `error`. `storage` implements the traits in the domains' `store.rs`; only
//! [`server`] and the commands name it. Actix stays in `actor.rs` files, its web half in `http` and `server`. A test
//! (`tests/it/architecture.rs`) holds all of this.
//!
//! # The actors
//!
//! | actor | how many | owns | never |
//! |---|---|---|---|
//! | control ([`pki::actor`]) | one per mount | the mount's roles, issuers, keys, settings and CRL state; it alone publishes its view | parses, encodes or signs in a handler |
//! | replica ([`pki::actor`]) | one per mount on each HTTP worker | a handle to the published view | outlives a request with state; dies of a panic |
//! | signer ([`keys::actor`]) | one per managed key | the places at the key's backend, its sessions, and the line of jobs in front | works for a caller who has left; gives out a signature that does not verify |
//! | commit ([`storage::commit`]) | one per store | the queue of writes and the database's writing connection | lets a bad row fail a good one of its batch |
//!
//! Around them: a *view* ([`pki::mount::view`]) is the mount's state, compiled for issuing and immutable; readers
//! load it by one atomic swap. Policies and the mount table are published the same way, tokens are a
//! bounded cache over an indexed row. RSA keys come from three quiet threads, in lanes by size, or
//! ready-made ([`keys::pool`]); CPU work of more than 0.5 ms runs in the CPU queue, CRL builds on blocking threads. A
//! signer that is not in this process is awaited by whoever asked and by nobody else: no actor, worker, thread or place
//! for a build. A queue is bounded by permits or by a length that its owner holds: mailboxes do not bound.
//!
//! # Every request
//!
//! [`http::secrets`] runs one pipeline: limits (path, headers) → route, the path in canonical spelling → quota →
//! recognise (token, policy of the path) → body, JSON → decide (token, policy) → audit intent → handler →
//! audit outcome → render. On both wires the [`audit`] hears of refusals too. Nobody's body is kept who has no right to
//! the path, those that are kept share a budget ([`http::body`]), answers on their way another ([`http::response_budget`]), senders
//! a worker's time ([`http::fair_scheduler`]). What can be asked stands in route tables, which dispatch, metrics and tests that
//! visit every route share. Errors are one type ([`error::Error`]): kind, text for the caller, cause for the log, status.
//!
//! # Three requests
//!
//! `POST /v1/pki/issue/web`, a certificate with a new key:
//!
//! 1. The pipeline finds the mount and route, the caller behind the token (cached for at most a second)
//!    and that its policies grant `update`. The handler reads the body (`http/secrets/pki/issuing/fields.rs`) and
//!    sends the request ([`pki::issue::request`]) to this worker's replica.
//! 2. The replica loads the view once and runs [`pki::issue`]: hold names ([`pki::check::names`]) and dates
//!    ([`pki::check::validity`]) against the role. What passes is a draft (`pki/issue/release.rs`). Its
//!    to-be-signed bytes are read back and held against RFC 5280 and the name constraints of the chain
//!    (`pki/check/structure.rs`, [`pki::constraints`]); that makes a `Prepared`, the only thing that reaches a
//!    key, for certificates and CRLs alike.
//! 3. Key, serial, to-be-signed bytes ([`x509::tbs`]) from pre-encoded [`x509::pieces`], signature: in place, a few
//!    tens of microseconds for EC keys. An RSA key comes from the pool, whose stock is filled while nobody asks.
//! 4. The record goes to the commit actor. Whatever arrived during its last commit leaves in the next one.
//! 5. When that batch is durable, and not before, the certificate is released ([`pki::issue::issued`]); the handler
//!    words the answer (`http/secrets/pki/rendering.rs`). A role with `no_store` skips 4.
//!
//! `POST /v1/pki/roles/web`, a change:
//!
//! 1. The pipeline as above; the handler gives [`pki::ca::changes`] a merge of the body with the role that
//!    stands, which goes to the control actor in a plan.
//! 2. The control actor runs one change at a time: the plan works out, on the current view and off every
//!    worker, the next view and the documents to write, or refuses with field and rule.
//! 3. The documents are sealed ([`storage::seal`]) and committed by compare-and-set on their version.
//! 4. The next view is published, then the change is answered: whoever was answered reads its own write,
//!    on every worker. Requests that hold the old view finish on it.
//!
//! `POST /v1/pki/revoke`, a fact and its projection:
//!
//! 1. [`pki::revocation::revoke`] finds the certificate by serial, or reads the one that was sent.
//! 2. A row with the next number of the mount's revocation sequence is committed. From now on the
//!    certificate counts as revoked, whatever happens to the CRL, and whether or not the caller waits.
//! 3. The control actor lends its builder ([`pki::crl`]) to one build: new rows since the last number,
//!    entries that are already encoded, a signature. Who asks meanwhile shares the next build.
//! 4. The CRLs are published, then the revocation is answered: a CRL fetched after it lists the serial. With
//!    `auto_rebuild` it is answered before, and the timer builds.
//!
//! A request of the projects API is one session of the store ([`projects::Projects::run`]): who asks and what
//! they may do is read where the rows are changed, in one transaction, and a violated constraint is an answer
//! like any other ([`projects::rejection`]).
//!
//! # Where rules live
//!
//! | question | place |
//! |---|---|
//! | may this name be in a certificate? | [`pki::check::names`] |
//! | from when until when? | [`pki::check::validity`] |
//! | what is in a role, what does a write check? | [`pki::mount::role`] |
//! | which extensions, in which order? | [`pki::mount::profile`], `x509/extension.rs` |
//! | what may an extension or a name hold that is signed? | [`x509::profile`], called by `pki/check/structure.rs` |
//! | where do serial numbers come from? | [`pki::serials`] |
//! | what is recorded beside a certificate, such as a request that may be repeated? | [`pki::issue::side_effects`], [`pki::issue::idempotency`], [`pki::revocation::leases`] |
//! | who signs with a managed key, and is it true? | [`keys::signing`], asked by `pki/check/prepared.rs` |
//! | which issuer signs, may it? | [`pki::mount::view`], `pki/issue/signer.rs` |
//! | what may be imported, what does it become? | [`pki::ca::import`], `pki/ca/bundle.rs`, [`pki::revocation::crl_import`] |
//! | what may an external policy engine decide? | [`pki::issue::external_policy`] |
//! | what is on the CRL, when is it built? | [`pki::crl`] |
//! | is this certificate revoked (OCSP)? | [`pki::revocation::ocsp`] |
//! | what is removed when it has expired? | [`pki::tidy`] |
//! | which mount may use which managed key? | [`keys::managed`] |
//! | what is done when a device fails? | `keys/pkcs11/healing.rs` |
//! | when is the next data key made, where is the seal key? | [`keyring`], [`keys::seal`] |
//! | what does a policy grant, and why? which paths need `sudo`? | [`auth::policy`], [`http::secrets::sudo`] |
//! | how long does a token live, who is behind it? | `auth/token/ttl.rs`, [`auth::identity`] (and [`templates`]) |
//! | which path is which mount, of which type? | [`auth::mounts`] |
//! | when is a mount opened, and when closed? | [`mounts`] |
//! | what is an audit device told, and when? | [`audit`] |
//! | which paths and fields are there? | the `ROUTES` of [`http::secrets`] |
//! | how lenient is a body, how long may a list be, how many are sent at once? | [`fields`], [`clock`] for durations and times, [`http::long_lists`] |
//! | what is asked of a certificate, and of what fields is it read? | [`pki::check::request`], `http/secrets/pki/asked.rs` |
//! | which types has an answer, for whom? | [`http::secrets::dialect`] |
//! | who may do what with a project? | [`projects::rights`], [`projects::team_access`] |
//! | where is the caller, behind which proxies, and how often may they ask? | [`http::address`], [`caller_network`], [`auth::quotas`] |
//! | how many connections, and which of them end? what renews their certificate? | `server/connections.rs`, [`server::renewal`] |
//! | when is a client told to send its body (100)? | `server/expect.rs` |
//! | what may a client do over HTTP/2, how much at once? | `server/http2.rs` |
//! | what is compressed, and what never? | [`http::encoding`] |
//! | who may act as a team, or give it rights? | [`projects::escalation`] |
//! | what may an operator ask of a server that runs? is a copy whole? | [`server::operator`], [`server::verify`] |
//! | what is measured, what may be configured? | [`telemetry::catalogue`], [`config`] |
//!
//! # What holds everywhere
//!
//! - A signature is made in two steps, to-be-signed bytes and then a signer, for whatever is signed.
//! - A certificate leaves only after its record is durable; a request that fails leaves nothing half-done.
//!   One that ends in a 503 of the store may be stored, whole: a write is safe to repeat.
//! - Secrets are types without `Debug` ([`secret`]); tokens and accessors are stored as hashes, bodies
//!   sealed. `tests/it/canary.rs` searches all output and all files for them.
//! - Time and the randomness of serials are parameters ([`clock::Clock`]).

pub mod audit;
pub mod auth;
pub mod budget;
pub mod caller_network;
pub mod clock;
pub mod config;
pub mod derived_values;
pub mod documents;
pub mod error;
pub mod fair_queue;
pub mod fields;
pub mod http;
pub mod keyring;
pub mod keys;
pub mod mounts;
pub mod nodes;
pub mod outbound;
pub mod pki;
pub mod projects;
pub mod random;
pub mod secret;
pub mod server;
pub mod sql;
pub mod storage;
pub mod telemetry;
pub mod templates;
pub mod x509;
