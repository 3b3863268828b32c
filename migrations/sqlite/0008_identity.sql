-- Who logs in: entities, and what they are called at each mount.

-- Entities; bodies are sealed. One that came of a login goes when kept_until_micros is over and no token is its.
CREATE TABLE entity (
    id                TEXT    PRIMARY KEY,
    name              TEXT    NOT NULL UNIQUE,
    version           INTEGER NOT NULL,
    body              BLOB    NOT NULL,
    kept_until_micros INTEGER
) STRICT;
CREATE INDEX entity_kept ON entity (kept_until_micros) WHERE kept_until_micros IS NOT NULL;

-- What an entity is called at the mount with this accessor; bodies are sealed.
CREATE TABLE entity_alias (
    id       TEXT    PRIMARY KEY,
    accessor TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    entity   TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    UNIQUE (accessor, name),
    UNIQUE (entity, accessor)
) STRICT;

-- Whose a token is.
ALTER TABLE token ADD COLUMN entity TEXT;
CREATE INDEX token_entity ON token (entity, expires_at_micros) WHERE entity IS NOT NULL;
