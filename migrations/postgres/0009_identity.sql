-- Identities that log in: entities, and their names (aliases) at each mount.

-- Entities; bodies are sealed. An entity created by a login is removed after kept_until_micros, once it has no tokens.
CREATE TABLE entity (
    id                TEXT COLLATE "C" PRIMARY KEY,
    name              TEXT COLLATE "C" NOT NULL UNIQUE,
    version           BIGINT NOT NULL,
    body              BYTEA NOT NULL,
    kept_until_micros BIGINT
);
CREATE INDEX entity_kept ON entity (kept_until_micros) WHERE kept_until_micros IS NOT NULL;

-- The name of an entity at the mount with this accessor; bodies are sealed.
CREATE TABLE entity_alias (
    id       TEXT COLLATE "C" PRIMARY KEY,
    accessor TEXT COLLATE "C" NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    entity   TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    body     BYTEA NOT NULL,
    UNIQUE (accessor, name),
    UNIQUE (entity, accessor)
);

-- The entity of a token.
ALTER TABLE token ADD COLUMN entity TEXT COLLATE "C";
CREATE INDEX token_entity ON token (entity, expires_at_micros) WHERE entity IS NOT NULL;
