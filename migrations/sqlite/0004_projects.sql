-- The projects API. Times are epoch microseconds. Names are unique regardless of case: the columns *_lc contain them in
-- lower case. The response to a violation of a unique constraint is chosen by the name <table>_<columns>_key, which the
-- program derives from the columns in SQLite's error.
--
-- The statement that changes rows also updates their counter, so that no list has to count the rows of a table.

CREATE TABLE users (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id      TEXT NOT NULL UNIQUE,
    username    TEXT NOT NULL,
    username_lc TEXT NOT NULL UNIQUE,
    email       TEXT NOT NULL,
    email_lc    TEXT NOT NULL UNIQUE,
    created_at  INTEGER NOT NULL
) STRICT;

-- settings: a JSON object of the attributes that are stored and returned, but have no effect.
CREATE TABLE organizations (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id              TEXT NOT NULL UNIQUE,
    name                TEXT NOT NULL CHECK (length(name) BETWEEN 3 AND 40),
    name_lc             TEXT NOT NULL UNIQUE,
    email               TEXT NOT NULL,
    execution_mode      TEXT NOT NULL DEFAULT 'remote' CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id       INTEGER,
    user_tokens_enabled INTEGER NOT NULL DEFAULT TRUE,
    allow_force_delete  INTEGER NOT NULL DEFAULT FALSE,
    settings            TEXT NOT NULL DEFAULT '{}',
    project_count       INTEGER NOT NULL DEFAULT 0,
    workspace_count     INTEGER NOT NULL DEFAULT 0,
    created_at          INTEGER NOT NULL,
    CONSTRAINT organizations_agent_pool_fk FOREIGN KEY (agent_pool_id, id) REFERENCES agent_pools (id, org_id),
    CONSTRAINT organizations_pool_mode CHECK ((execution_mode = 'agent') = (agent_pool_id IS NOT NULL))
) STRICT;

-- scope: {"allowed-workspaces": [], "allowed-projects": [], "excluded-workspaces": []}.
CREATE TABLE agent_pools (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id              TEXT NOT NULL UNIQUE,
    org_id              INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name                TEXT NOT NULL,
    name_lc             TEXT NOT NULL,
    organization_scoped INTEGER NOT NULL DEFAULT TRUE,
    scope               TEXT NOT NULL DEFAULT '{}',
    created_at          INTEGER NOT NULL,
    UNIQUE (org_id, name_lc),
    UNIQUE (id, org_id)
) STRICT;

CREATE TABLE organization_memberships (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id     TEXT NOT NULL UNIQUE,
    org_id     INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    user_id    INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    status     TEXT NOT NULL CHECK (status IN ('active', 'invited')),
    created_at INTEGER NOT NULL,
    UNIQUE (user_id, org_id)
) STRICT;
CREATE INDEX organization_memberships_org ON organization_memberships (org_id, id);

-- execution_mode: NULL inherits that of the organization.
CREATE TABLE projects (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id          TEXT NOT NULL UNIQUE,
    org_id          INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 3 AND 40),
    name_lc         TEXT NOT NULL,
    description     TEXT    CHECK (length(description) <= 256),
    auto_destroy    TEXT,
    execution_mode  TEXT    CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id   INTEGER,
    is_default      INTEGER NOT NULL DEFAULT FALSE,
    workspace_count INTEGER NOT NULL DEFAULT 0,
    team_count      INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL,
    CONSTRAINT projects_agent_pool_fk FOREIGN KEY (agent_pool_id, org_id) REFERENCES agent_pools (id, org_id),
    CONSTRAINT projects_pool_mode
        CHECK ((execution_mode IS NOT DISTINCT FROM 'agent') = (agent_pool_id IS NOT NULL)),
    UNIQUE (org_id, name_lc),
    UNIQUE (id, org_id)
) STRICT;
CREATE UNIQUE INDEX projects_org_id_key ON projects (org_id) WHERE is_default;
CREATE INDEX projects_org_id_desc ON projects (org_id, id DESC);
CREATE INDEX projects_agent_pool ON projects (agent_pool_id) WHERE agent_pool_id IS NOT NULL;

-- execution_mode: NULL inherits that of the project. locked_by: 'users/user-…' or 'teams/team-…'; NULL if not locked.
CREATE TABLE workspaces (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id                TEXT NOT NULL UNIQUE,
    org_id                INTEGER NOT NULL,
    project_id            INTEGER NOT NULL,
    name                  TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 90),
    name_lc               TEXT NOT NULL,
    description           TEXT,
    inherits_auto_destroy INTEGER NOT NULL DEFAULT TRUE,
    own_auto_destroy      TEXT,
    auto_destroy_at       INTEGER,
    execution_mode        TEXT    CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id         INTEGER,
    terraform_version     TEXT NOT NULL DEFAULT 'latest',
    settings              TEXT NOT NULL DEFAULT '{}',
    locked_by             TEXT,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    CONSTRAINT workspaces_project_fk FOREIGN KEY (project_id, org_id) REFERENCES projects (id, org_id)
        ON DELETE RESTRICT,
    CONSTRAINT workspaces_agent_pool_fk FOREIGN KEY (agent_pool_id, org_id) REFERENCES agent_pools (id, org_id),
    CONSTRAINT workspaces_pool_mode
        CHECK ((execution_mode IS NOT DISTINCT FROM 'agent') = (agent_pool_id IS NOT NULL)),
    CONSTRAINT workspaces_auto_destroy CHECK (NOT (inherits_auto_destroy AND own_auto_destroy IS NOT NULL)),
    UNIQUE (org_id, name_lc)
) STRICT;
CREATE INDEX workspaces_project ON workspaces (project_id, id);
CREATE INDEX workspaces_agent_pool ON workspaces (agent_pool_id) WHERE agent_pool_id IS NOT NULL;

-- The ids are in the order in which the tags were first set. A flat tag is a binding with an empty value.
CREATE TABLE tag_bindings (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id       TEXT NOT NULL UNIQUE,
    project_id   INTEGER REFERENCES projects (id) ON DELETE CASCADE,
    workspace_id INTEGER REFERENCES workspaces (id) ON DELETE CASCADE,
    key          TEXT NOT NULL,
    value        TEXT NOT NULL DEFAULT '',
    CONSTRAINT tag_bindings_one_owner CHECK ((project_id IS NULL) <> (workspace_id IS NULL)),
    UNIQUE (project_id, key),
    UNIQUE (workspace_id, key)
) STRICT;
CREATE INDEX tag_bindings_key_value ON tag_bindings (key, value);

-- org_access: one bit per flag of organization-access.
CREATE TABLE teams (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id        TEXT NOT NULL UNIQUE,
    org_id        INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name          TEXT NOT NULL,
    name_lc       TEXT NOT NULL,
    is_owners     INTEGER NOT NULL DEFAULT FALSE,
    visibility    TEXT NOT NULL DEFAULT 'secret' CHECK (visibility IN ('secret', 'organization')),
    org_access    INTEGER NOT NULL DEFAULT 0,
    sso_team_id   TEXT,
    member_tokens INTEGER NOT NULL DEFAULT TRUE,
    user_count    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (org_id, name_lc)
) STRICT;
CREATE UNIQUE INDEX teams_org_id_key ON teams (org_id) WHERE is_owners;

CREATE TABLE team_memberships (
    team_id INTEGER NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    PRIMARY KEY (user_id, team_id)
) STRICT;
CREATE INDEX team_memberships_team ON team_memberships (team_id);

-- perm_bits: the permissions of the level or of the custom keys. custom: a JSON object of the keys of a custom level.
CREATE TABLE team_project_access (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id     TEXT NOT NULL UNIQUE,
    team_id    INTEGER NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id INTEGER NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    access     TEXT NOT NULL CHECK (access IN ('read', 'write', 'maintain', 'admin', 'custom')),
    perm_bits  INTEGER NOT NULL,
    custom     TEXT,
    UNIQUE (team_id, project_id)
) STRICT;
CREATE INDEX team_project_access_project ON team_project_access (project_id, id);

-- API tokens of users, teams and organizations. lookup is the public part of the token. created_by remains when its
-- subject is deleted: 'users/user-…', 'teams/team-…' or 'organizations/<external id>'.
CREATE TABLE api_tokens (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id        TEXT NOT NULL UNIQUE,
    lookup        TEXT NOT NULL UNIQUE,
    secret_sha256 BLOB  NOT NULL CHECK (length(secret_sha256) = 32),
    user_id       INTEGER REFERENCES users (id) ON DELETE CASCADE,
    team_id       INTEGER REFERENCES teams (id) ON DELETE CASCADE,
    org_id        INTEGER REFERENCES organizations (id) ON DELETE CASCADE,
    kind          TEXT NOT NULL DEFAULT 'standard' CHECK (kind IN ('standard', 'audit-trails')),
    description   TEXT,
    created_by    TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    last_used_at  INTEGER,
    expired_at    INTEGER,
    CONSTRAINT api_tokens_one_subject CHECK (
        CASE WHEN user_id IS NULL THEN 0 ELSE 1 END + CASE WHEN team_id IS NULL THEN 0 ELSE 1 END
        + CASE WHEN org_id IS NULL THEN 0 ELSE 1 END = 1),
    CONSTRAINT api_tokens_audit CHECK (kind = 'standard' OR org_id IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX api_tokens_org_id_kind_key ON api_tokens (org_id, kind) WHERE org_id IS NOT NULL;
CREATE INDEX api_tokens_user ON api_tokens (user_id, id);
CREATE UNIQUE INDEX api_tokens_team_id_key ON api_tokens (team_id) WHERE description IS NULL;
CREATE UNIQUE INDEX api_tokens_team_id_description_key ON api_tokens (team_id, description);
