//! SQL statements that both engines share, by table. Statements that differ between the engines are in the files of
//! each engine.
//!
//! They use only syntax that SQLite and PostgreSQL have in common: `$1` in order of first appearance, RETURNING, ON
//! CONFLICT, 64-bit integers, and bytewise comparison of blobs. The statements of `tables` may also contain list
//! parameters and row locks, as in [`crate::sql`].

/// Statements for tables with few rows per mount. They remove the rows in the transaction that drops the mount. They
/// run before the row of the mount is deleted, because the rows refer to it.
pub(super) const DELETE_FEW_ROWS_OF_MOUNT: [&str; 5] = [
    documents::DELETE_OF_MOUNT,
    crls::DELETE_OF_MOUNT,
    tidy::DELETE_OF_MOUNT,
    mounts::DELETE_COUNTERS_OF_MOUNT,
    secret_ids::DELETE_ROLES_OF_MOUNT,
];

/// Statements for tables with many rows per mount. Each removes at most `$2` rows of a dropped mount.
pub(super) const DELETE_MANY_ROWS_OF_MOUNT: [&str; 5] = [
    certificates::DELETE_OF_MOUNT,
    revocations::DELETE_OF_MOUNT,
    leases::DELETE_OF_MOUNT,
    metadata::DELETE_OF_MOUNT,
    secret_ids::DELETE_OF_MOUNT,
];

pub(super) mod certificates {
    pub(crate) const GET: &str =
        "SELECT c.issuer, c.role, c.common_name, c.not_before, c.not_after, c.issued_at, c.requester, c.der,
            r.seq, r.serial, r.issuer, r.revoked_at_micros, r.not_after, r.reason, r.invalidity_date
        FROM certificate c LEFT JOIN revocation r ON r.mount = c.mount AND r.serial = c.serial
        WHERE c.mount = $1 AND c.serial = $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)";
    /// Selects the issuer and the revocation of a serial number, without the certificate itself. Also finds a
    /// revocation whose certificate was removed.
    pub(crate) const SELECT_SERIAL_STATUS: &str = "SELECT c.issuer,
            r.seq, r.serial, r.issuer, r.revoked_at_micros, r.not_after, r.reason, r.invalidity_date
        FROM (SELECT id FROM mount WHERE id = $1) m
            LEFT JOIN certificate c ON c.mount = m.id AND c.serial = $2
            LEFT JOIN revocation r ON r.mount = m.id AND r.serial = $2";
    pub(crate) const SERIALS: &str = "SELECT serial FROM certificate
        WHERE mount = $1 AND serial > $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1) ORDER BY serial LIMIT $3";
    pub(crate) const PAGE: &str = "SELECT serial, der FROM certificate
        WHERE mount = $1 AND serial > $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1) ORDER BY serial LIMIT $3";
    /// Selects certificates in the order of their expiry, with the index on `not_after`.
    pub(crate) const SELECT_UNEXPIRED: &str = "SELECT serial, der FROM certificate
        WHERE mount = $1 AND not_after >= $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)
        ORDER BY not_after, serial LIMIT $3";
    /// Selects the certificates and the revocations with these serial numbers. Rows of revocations have NULL as
    /// `not_after`.
    pub(crate) const SELECT_KNOWN_SERIALS: &str = "SELECT serial, issuer, not_after FROM certificate
        WHERE mount = $1 AND serial = ANY($2) AND EXISTS (SELECT 1 FROM mount WHERE id = $1)
        UNION ALL SELECT serial, issuer, CAST(NULL AS BIGINT) FROM revocation
        WHERE mount = $1 AND serial = ANY($2) AND EXISTS (SELECT 1 FROM mount WHERE id = $1)";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM certificate WHERE mount = $1 AND serial IN
        (SELECT serial FROM certificate WHERE mount = $1 ORDER BY serial LIMIT $2)";
}

pub(super) mod revocations {
    pub(crate) const SET_ISSUER: &str = "UPDATE revocation SET issuer = $1 WHERE mount = $2 AND serial = $3";
    pub(crate) const SERIALS: &str = "SELECT serial FROM revocation
        WHERE mount = $1 AND serial > $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1) ORDER BY serial LIMIT $3";
    pub(crate) const PAGE: &str = "SELECT seq, serial, issuer, revoked_at_micros, not_after, reason, invalidity_date
        FROM revocation WHERE mount = $1 AND seq > $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)
        ORDER BY seq LIMIT $3";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM revocation WHERE mount = $1 AND serial IN
        (SELECT serial FROM revocation WHERE mount = $1 ORDER BY serial LIMIT $2)";
}

/// Statements on leases. The statements that read leases skip leases that are being revoked, and leases whose token or
/// mount no longer exists.
pub(super) mod leases {
    pub(crate) const GET: &str = "SELECT id, mount, serial, token, issued_at, expires_at FROM lease
        WHERE id = $1 AND ending = 0 AND NOT EXISTS (SELECT 1 FROM ended_token WHERE hash = lease.token)
            AND EXISTS (SELECT 1 FROM mount WHERE mount.id = lease.mount)";
    pub(crate) const IDS: &str = "SELECT id FROM lease
        WHERE id > $1 AND id < $2 AND ending = 0 AND (CAST($3 AS BIGINT) IS NULL OR lease.mount = $3)
            AND CAST($4 AS TEXT) NOT LIKE '%,' || lease.mount || ',%'
            AND NOT EXISTS (SELECT 1 FROM ended_token WHERE hash = lease.token)
            AND EXISTS (SELECT 1 FROM mount WHERE mount.id = lease.mount)
        ORDER BY id LIMIT $5";
    pub(crate) const ENDING: &str = "SELECT id, mount, serial, token, issued_at, expires_at FROM lease
        WHERE ending = 1 AND id > $1 AND id < $2 AND EXISTS (SELECT 1 FROM mount WHERE mount.id = lease.mount)
        ORDER BY id LIMIT $3";
    pub(crate) const MARK_ENDING: &str = "UPDATE lease SET ending = 1 WHERE id = ANY($1) AND ending = 0";
    pub(crate) const DELETE: &str = "DELETE FROM lease WHERE id = ANY($1)";
    /// Marks leases of ended tokens for revocation. Afterwards [`FORGET_ENDED`] removes the records of ended tokens
    /// whose leases are all marked.
    pub(crate) const MARK_ENDED: &str = "UPDATE lease SET ending = 1 WHERE id IN
        (SELECT lease.id FROM ended_token JOIN lease ON lease.token = ended_token.hash AND lease.ending = 0 LIMIT $1)";
    pub(crate) const FORGET_ENDED: &str = "DELETE FROM ended_token WHERE NOT EXISTS
        (SELECT 1 FROM lease WHERE lease.token = ended_token.hash AND lease.ending = 0)";
    pub(crate) const SWEEP: &str = "DELETE FROM lease WHERE id IN
        (SELECT id FROM lease WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM lease WHERE mount = $1 AND serial IN
        (SELECT serial FROM lease WHERE mount = $1 ORDER BY serial LIMIT $2)";
}

/// Statements on the metadata that callers attached to certificates.
pub(super) mod metadata {
    pub(crate) const GET: &str = "SELECT not_after, body FROM certificate_metadata
        WHERE mount = $1 AND serial = $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)";
    pub(crate) const SERIALS: &str = "SELECT serial FROM certificate_metadata
        WHERE mount = $1 AND serial > $2 AND EXISTS (SELECT 1 FROM mount WHERE id = $1) ORDER BY serial LIMIT $3";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM certificate_metadata WHERE mount = $1 AND serial IN
        (SELECT serial FROM certificate_metadata WHERE mount = $1 ORDER BY serial LIMIT $2)";
}

/// Statements on recorded responses, which answer repeated requests.
pub(super) mod recorded_responses {
    pub(crate) const GET: &str = "SELECT request, serial, lease, expires_at FROM answered_request WHERE key = $1";
    pub(crate) const SWEEP: &str = "DELETE FROM answered_request WHERE key IN
        (SELECT key FROM answered_request WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

pub(super) mod tidy {
    pub(crate) const GET: &str = "SELECT run, valid_until, cancelled, report FROM tidy WHERE mount = $1";
    pub(crate) const BEGIN: &str =
        "INSERT INTO tidy (mount, run, valid_until, cancelled, report) VALUES ($1, $2, $3, 0, $4)
        ON CONFLICT (mount) DO UPDATE SET run = excluded.run, valid_until = excluded.valid_until, cancelled = 0,
            report = excluded.report
        WHERE tidy.valid_until <= $5 AND tidy.run = $6";
    pub(crate) const EXTEND_RUN: &str = "UPDATE tidy SET valid_until = $1, report = $2 WHERE mount = $3 AND run = $4
        RETURNING cancelled";
    pub(crate) const CANCEL: &str = "UPDATE tidy SET cancelled = 1 WHERE mount = $1 AND valid_until > $2";
    /// Selects expired certificates in the order of their expiry, and for each whether it is revoked.
    pub(crate) const EXPIRED_CERTIFICATES: &str =
        "SELECT serial, not_after, CAST(CASE WHEN EXISTS (SELECT 1 FROM revocation
            WHERE revocation.mount = certificate.mount AND revocation.serial = certificate.serial)
            THEN 1 ELSE 0 END AS BIGINT)
        FROM certificate WHERE mount = $1 AND not_after < $2 AND (not_after, serial) > ($3, $4)
        ORDER BY not_after, serial LIMIT $5";
    /// Selects expired revocations with the index on `not_after`. The `+` prevents the use of the index on `seq`.
    pub(crate) const EXPIRED_REVOCATIONS: &str = "SELECT serial FROM revocation
        WHERE mount = $1 AND not_after < $2 AND +seq <= $3 ORDER BY not_after LIMIT $4";
    /// Finds a row if a CRL may lack the revocation of a certificate that expired before `$2`: the certificate expired
    /// at `$3` or later, or the sequence number of the revocation is above `$4`.
    pub(crate) const UNLISTED_REVOCATION: &str =
        "SELECT 1 FROM revocation WHERE mount = $1 AND not_after < $2 AND not_after >= $3
        UNION ALL SELECT 1 FROM revocation WHERE mount = $1 AND seq > $4 AND +not_after < $2 LIMIT 1";
    pub(crate) const DELETE_METADATA: &str = "DELETE FROM certificate_metadata WHERE mount = $1 AND serial IN
        (SELECT serial FROM certificate_metadata WHERE mount = $1 AND not_after < $2 ORDER BY not_after LIMIT $3)";
    pub(crate) const DELETE_CERTIFICATES: &str =
        "DELETE FROM certificate WHERE mount = $1 AND serial = ANY($2) AND not_after < $3";
    pub(crate) const DELETE_REVOCATIONS: &str = "DELETE FROM revocation WHERE mount = $1 AND serial = ANY($2)";
    pub(crate) const DELETE_REVOKED_CERTIFICATES: &str =
        "DELETE FROM certificate WHERE mount = $1 AND serial = ANY($2) AND NOT EXISTS
        (SELECT 1 FROM revocation WHERE revocation.mount = certificate.mount AND revocation.serial = certificate.serial
            AND revocation.not_after >= $3)";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM tidy WHERE mount = $1";
}

pub(super) mod documents {
    pub(crate) const INSERT: &str = "INSERT INTO document (mount, kind, name, version, body) VALUES ($1, $2, $3, 1, $4)
        ON CONFLICT (mount, kind, name) DO NOTHING";
    pub(crate) const UPDATE: &str = "UPDATE document SET version = version + 1, body = $1
        WHERE mount = $2 AND kind = $3 AND name = $4 AND version = $5";
    pub(crate) const DELETE: &str =
        "DELETE FROM document WHERE mount = $1 AND kind = $2 AND name = $3 AND version = $4";
    pub(crate) const EXISTS: &str = "SELECT 1 FROM document WHERE mount = $1 AND kind = $2 AND name = $3";
    pub(crate) const LIST: &str = "SELECT kind, name, version, body FROM document WHERE mount = $1 ORDER BY kind, name";
    pub(crate) const LIST_KIND: &str =
        "SELECT kind, name, version, body FROM document WHERE mount = $1 AND kind = $2 ORDER BY name";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM document WHERE mount = $1";
}

pub(super) mod crls {
    pub(crate) const PUBLISH: &str = "INSERT INTO crl (mount, grp, number, covers, this_update, next_update, signature)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (mount, grp) DO UPDATE SET number = excluded.number, covers = excluded.covers,
            this_update = excluded.this_update, next_update = excluded.next_update, signature = excluded.signature
        WHERE excluded.number > crl.number AND excluded.covers >= crl.covers";
    pub(crate) const LIST: &str = "SELECT grp, number, covers, this_update, next_update, signature FROM crl
        WHERE mount = $1 ORDER BY grp";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM crl WHERE mount = $1";
}

pub(super) mod mounts {
    pub(crate) const EXISTS: &str = "SELECT 1 FROM mount WHERE id = $1";
    pub(crate) const CREATE: &str = "INSERT INTO mount (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";
    pub(crate) const IS_DROPPED: &str = "SELECT 1 FROM dropped_mount WHERE id = $1";
    pub(crate) const MARK_DROPPED: &str = "INSERT INTO dropped_mount (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";
    pub(crate) const DROP: &str = "DELETE FROM mount WHERE id = $1";
    pub(crate) const ANY_DROPPED: &str = "SELECT 1 FROM dropped_mount LIMIT 1";
    pub(crate) const NEXT_DROPPED: &str = "SELECT id FROM dropped_mount ORDER BY id LIMIT 1";
    pub(crate) const DELETE_DROPPED: &str = "DELETE FROM dropped_mount WHERE id = $1";
    pub(crate) const ADD_TO_COUNTER: &str =
        "INSERT INTO counter (mount, node, certificates, revocations) VALUES ($1, $2, $3, $4)
        ON CONFLICT (mount, node) DO UPDATE SET certificates = counter.certificates + excluded.certificates,
            revocations = counter.revocations + excluded.revocations";
    pub(crate) const SELECT_COUNTS: &str =
        "SELECT CAST(COALESCE(SUM(certificates), 0) AS BIGINT), CAST(COALESCE(SUM(revocations), 0) AS BIGINT)
        FROM counter WHERE mount = $1";
    pub(crate) const DELETE_COUNTERS_OF_MOUNT: &str = "DELETE FROM counter WHERE mount = $1";
}

pub(super) mod tokens {
    pub(crate) const INSERT: &str =
        "INSERT INTO token (hash, accessor_hash, parent, expires_at_micros, uses, mount, entity, body)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
    pub(crate) const UPDATE: &str = "UPDATE token SET expires_at_micros = $1, body = $2
        WHERE hash = $3 AND (expires_at_micros IS NULL OR expires_at_micros > $4)";
    pub(crate) const SPEND: &str = "UPDATE token SET uses = uses - 1 WHERE hash = $1 AND uses > 0 RETURNING uses";
    pub(crate) const DELETE: &str = "DELETE FROM token WHERE hash = $1";
    pub(crate) const DELETE_USABLE: &str = "DELETE FROM token WHERE hash = $1 AND uses > 0";
    pub(crate) const BY_HASH: &str = "SELECT hash, accessor_hash, parent, uses, body, expires_at_micros, mount, entity
        FROM token WHERE hash = $1
            AND (mount IS NULL OR EXISTS (SELECT 1 FROM mount WHERE mount.id = token.mount))";
    pub(crate) const BY_ACCESSOR: &str =
        "SELECT hash, accessor_hash, parent, uses, body, expires_at_micros, mount, entity
        FROM token WHERE accessor_hash = $1
            AND (mount IS NULL OR EXISTS (SELECT 1 FROM mount WHERE mount.id = token.mount))";
    pub(crate) const PAGE: &str = "SELECT hash, accessor_hash, parent, uses, body, expires_at_micros, mount, entity
        FROM token WHERE accessor_hash > $1
            AND (mount IS NULL OR EXISTS (SELECT 1 FROM mount WHERE mount.id = token.mount))
        ORDER BY accessor_hash LIMIT $2";
    /// Counts live tokens that never expire, up to 1,000. A login never creates such tokens, so they have no mount. The
    /// condition on the mount lets SQLite use an index that begins with that column.
    pub(crate) const COUNT_NEVER_EXPIRING: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM token
        WHERE mount IS NULL AND expires_at_micros IS NULL AND (uses IS NULL OR uses > 0) LIMIT 1000) AS endless";
    /// Selects some tokens of a dropped mount, which are then revoked together with their descendants.
    pub(crate) const SELECT_OF_MOUNT: &str = "SELECT hash FROM token WHERE mount = $1 LIMIT $2";
}

/// Statements on cubbyholes. The foreign key removes the entries together with their token.
pub(super) mod cubbyhole {
    /// Locks the token of a cubbyhole. So the token cannot end before the write, and the size includes the writes of
    /// other nodes.
    pub(crate) const LOCK_TOKEN: &str = "SELECT 1 FROM token WHERE hash = $1 FOR NO KEY UPDATE";
    pub(crate) const PUT: &str = "INSERT INTO cubbyhole (token, path, body) VALUES ($1, $2, $3)
        ON CONFLICT (token, path) DO UPDATE SET body = excluded.body";
    /// Selects the number and total size of the entries of a token, except the entry at one path.
    pub(crate) const SIZE: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(body)), 0) AS BIGINT)
        FROM cubbyhole WHERE token = $1 AND path <> $2";
    pub(crate) const DELETE: &str = "DELETE FROM cubbyhole WHERE token = $1 AND path = $2";
    pub(crate) const GET: &str = "SELECT body FROM cubbyhole WHERE token = $1 AND path = $2";
    pub(crate) const PATHS: &str = "SELECT path FROM cubbyhole WHERE token = $1 AND path <> '' ORDER BY path";
}

pub(super) mod entities {
    /// Selects an entity with its aliases: one row per alias, or a single row without an alias.
    macro_rules! identity {
        ($found:literal) => {
            concat!(
                "SELECT e.id, e.name, e.version, e.body, e.kept_until_micros, a.id, a.accessor, a.name, a.version, a.body
                FROM entity e LEFT JOIN entity_alias a ON a.entity = e.id WHERE ",
                $found,
                " ORDER BY a.accessor"
            )
        };
    }

    pub(crate) const BY_ID: &str = identity!("e.id = $1");
    pub(crate) const BY_NAME: &str = identity!("e.name = $1");
    pub(crate) const BY_ALIAS_ID: &str = identity!("e.id = (SELECT entity FROM entity_alias WHERE id = $1)");
    pub(crate) const BY_ALIAS: &str =
        identity!("e.id = (SELECT entity FROM entity_alias WHERE accessor = $1 AND name = $2)");
    pub(crate) const PAGE_BY_ID: &str = "SELECT e.id, e.name, a.id, a.accessor, a.name
        FROM (SELECT id, name FROM entity WHERE id > $1 ORDER BY id LIMIT $2) e
            LEFT JOIN entity_alias a ON a.entity = e.id
        ORDER BY e.id, a.id";
    pub(crate) const PAGE_BY_NAME: &str = "SELECT e.id, e.name, a.id, a.accessor, a.name
        FROM (SELECT id, name FROM entity WHERE name > $1 ORDER BY name LIMIT $2) e
            LEFT JOIN entity_alias a ON a.entity = e.id
        ORDER BY e.name, a.id";
    pub(crate) const ALIASES: &str =
        "SELECT id, accessor, name, entity FROM entity_alias WHERE id > $1 ORDER BY id LIMIT $2";
    pub(crate) const INSERT: &str = "INSERT INTO entity (id, name, version, body, kept_until_micros)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    pub(crate) const UPDATE: &str = "UPDATE entity SET name = $1, version = $2, body = $3, kept_until_micros = $4
        WHERE id = $5 AND version = $6 AND NOT EXISTS (SELECT 1 FROM entity o WHERE o.name = $1 AND o.id <> $5)";
    pub(crate) const INSERT_ALIAS: &str = "INSERT INTO entity_alias (id, accessor, name, entity, version, body)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    pub(crate) const UPDATE_ALIAS: &str = "UPDATE entity_alias
        SET accessor = $1, name = $2, entity = $3, version = $4, body = $5
        WHERE id = $6 AND version = $7 AND NOT EXISTS (SELECT 1 FROM entity_alias o
            WHERE o.id <> $6 AND o.accessor = $1 AND (o.name = $2 OR o.entity = $3))";
    pub(crate) const EXISTS: &str = "SELECT 1 FROM entity WHERE id = $1";
    /// Locks an entity until its new alias is committed. A concurrent removal of the entity waits for the lock, and
    /// then finds the alias.
    pub(crate) const LOCK_ENTITY: &str = "SELECT 1 FROM entity WHERE id = $1 FOR KEY SHARE";
    /// Selects and locks expired entities. Skips locked ones, so concurrent sweeps of several nodes select different
    /// entities.
    pub(crate) const SELECT_EXPIRED: &str = "SELECT id FROM entity
        WHERE kept_until_micros <= $1 ORDER BY kept_until_micros LIMIT $2 FOR UPDATE SKIP LOCKED";
    /// Selects the latest expiry of the tokens of each entity; `$1` if one of the tokens never expires.
    pub(crate) const LAST_TOKEN_EXPIRIES: &str = "SELECT entity, MAX(COALESCE(expires_at_micros, $1)) FROM token
        WHERE entity = ANY($2) GROUP BY entity";
    /// Extends the time until which an entity is kept. An entity without such a time is kept permanently.
    pub(crate) const EXTEND_RETENTION: &str =
        "UPDATE entity SET kept_until_micros = $1 WHERE id = $2 AND kept_until_micros < $1";
    pub(crate) const DELETE_ALL: &str = "DELETE FROM entity WHERE id = ANY($1)";
    pub(crate) const DELETE_ALIASES_OF_ALL: &str = "DELETE FROM entity_alias WHERE entity = ANY($1)";
    pub(crate) const DELETE_ALIAS: &str = "DELETE FROM entity_alias WHERE id = $1";
}

pub(super) mod secret_ids {
    pub(crate) const ROLE_HAS_ENDED: &str = "SELECT 1 FROM ended_role WHERE mount = $1 AND role = $2";
    pub(crate) const ROLE_EXISTS: &str = "SELECT 1 FROM mount
        WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM ended_role WHERE mount = $1 AND role = $2)";
    pub(crate) const DELETE_EXPIRED: &str =
        "DELETE FROM secret_id WHERE mount = $1 AND hash = $2 AND expires_at_micros <= $3";
    pub(crate) const INSERT: &str =
        "INSERT INTO secret_id (mount, hash, role, accessor, expires_at_micros, uses, updated_at_micros, body)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
    pub(crate) const SPEND: &str = "UPDATE secret_id SET uses = uses - 1, updated_at_micros = $1
        WHERE mount = $2 AND hash = $3 AND uses > 0 AND (expires_at_micros IS NULL OR expires_at_micros > $1)
        RETURNING uses";
    pub(crate) const REMOVE: &str = "DELETE FROM secret_id WHERE mount = $1 AND hash = $2";
    pub(crate) const END_ROLE: &str =
        "INSERT INTO ended_role (mount, role, ended_at_micros) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    pub(crate) const SWEEP: &str = "DELETE FROM secret_id WHERE (mount, hash) IN
        (SELECT mount, hash FROM secret_id WHERE expires_at_micros <= $1 ORDER BY expires_at_micros LIMIT $2)";
    pub(crate) const SWEEP_ENDED: &str = "DELETE FROM secret_id WHERE (mount, hash) IN
        (SELECT of_role.mount, of_role.hash FROM ended_role
            JOIN secret_id of_role ON of_role.mount = ended_role.mount AND of_role.role = ended_role.role LIMIT $1)";
    /// Removes records of deleted roles. The role must have no secret ids left, and its deletion must be so old that
    /// every node knows it.
    pub(crate) const FORGET_ROLES: &str = "DELETE FROM ended_role WHERE ended_at_micros <= $1 AND NOT EXISTS
        (SELECT 1 FROM secret_id WHERE secret_id.mount = ended_role.mount AND secret_id.role = ended_role.role)";
    pub(crate) const BY_HASH: &str =
        "SELECT mount, role, hash, accessor, expires_at_micros, uses, updated_at_micros, body FROM secret_id
        WHERE mount = $1 AND role = $2 AND hash = $3 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)";
    pub(crate) const BY_ACCESSOR: &str =
        "SELECT mount, role, hash, accessor, expires_at_micros, uses, updated_at_micros, body FROM secret_id
        WHERE mount = $1 AND role = $2 AND accessor = $3 AND EXISTS (SELECT 1 FROM mount WHERE id = $1)";
    pub(crate) const ACCESSORS: &str = "SELECT accessor FROM secret_id
        WHERE mount = $1 AND role = $2 AND accessor > $3 AND (expires_at_micros IS NULL OR expires_at_micros > $4)
            AND EXISTS (SELECT 1 FROM mount WHERE id = $1)
        ORDER BY accessor LIMIT $5";
    pub(crate) const DELETE_ROLES_OF_MOUNT: &str = "DELETE FROM ended_role WHERE mount = $1";
    pub(crate) const DELETE_OF_MOUNT: &str = "DELETE FROM secret_id WHERE mount = $1 AND hash IN
        (SELECT hash FROM secret_id WHERE mount = $1 ORDER BY hash LIMIT $2)";
}

/// Statements on installation facts.
pub(super) mod meta {
    pub(crate) const INSERT: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    pub(crate) const UPDATE: &str = "UPDATE meta SET value = $1 WHERE name = $2 AND value = $3";
    pub(crate) const EXISTS: &str = "SELECT 1 FROM meta WHERE name = $1";
    pub(crate) const LIST: &str = "SELECT name, value FROM meta ORDER BY name";
    pub(crate) const SCHEMA: &str = "SELECT value FROM meta WHERE name = 'schema'";
    pub(crate) const SCHEMA_SET: &str = "INSERT INTO meta (name, value) VALUES ('schema', $1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
}

/// Error messages of rejected writes, the same for both engines.
pub(super) mod conflict {
    pub(crate) const MOUNT_GONE: &str = "storage: the mount no longer exists";
    pub(crate) const MOUNT_EXISTS: &str = "storage: the mount exists already";
    pub(crate) const DOCUMENT_CHANGED: &str = "storage: concurrent modification of the document; retry";
    pub(crate) const CRL_PUBLISHED: &str =
        "storage: a CRL with the same or a higher number, or with later revocations, is already published";
    pub(crate) const TIDY_RUN_REPLACED: &str = "storage: another tidy run has replaced this one";
    pub(crate) const PARENT_GONE: &str = "storage: the parent token no longer exists";
    pub(crate) const TOKEN_GONE: &str = "the token has expired or was revoked";
    pub(crate) const TOKEN_NOT_USABLE: &str = "storage: the token no longer exists or is used up";
    pub(crate) const CUBBYHOLE_FULL: &str = "cubbyhole: a token may have at most 128 entries and 2 MiB in total";
    pub(crate) const SECRET_ID_EXISTS: &str = "storage: the secret id exists already";
    pub(crate) const TOKEN_EXISTS: &str = "storage: the token or its accessor exists already";
    pub(crate) const ENTITY_CHANGED: &str = "storage: concurrent modification of the entity, or its name is taken";
    pub(crate) const ALIAS_CHANGED: &str = "storage: concurrent modification of the alias, or its name is taken";
    pub(crate) const ENTITY_GONE: &str = "storage: the entity no longer exists";
    pub(crate) const DATA_KEYS_CHANGED: &str = "storage: concurrent modification of the data keys; retry";
}
