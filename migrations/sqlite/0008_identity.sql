-- Identities that log in: entities, and their names (aliases) at each mount.

-- Entities; bodies are sealed. An entity created by a login is removed after kept_until_micros, once it has no tokens.
CREATE TABLE entity (
    id                TEXT    PRIMARY KEY,
    name              TEXT    NOT NULL UNIQUE,
    version           INTEGER NOT NULL,
    body              BLOB    NOT NULL,
    kept_until_micros INTEGER
) STRICT;
CREATE INDEX entity_kept ON entity (kept_until_micros) WHERE kept_until_micros IS NOT NULL;

-- The name of an entity at the mount with this accessor; bodies are sealed.
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

-- The entity of a token.
ALTER TABLE token ADD COLUMN entity TEXT;
CREATE INDEX token_entity ON token (entity, expires_at_micros) WHERE entity IS NOT NULL;
