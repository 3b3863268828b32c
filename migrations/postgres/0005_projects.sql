-- The projects API. Times are epoch microseconds. Names are unique regardless of case: the columns *_lc contain them in
-- lower case. Unique constraints and indexes are named <table>_<columns>_key, because the response to a violation is
-- chosen by this name. The embedded store derives the same name from the columns.
--
-- COLLATE "C", so that lists have the same order in both stores, regardless of the collation of the database.
--
-- The statement that changes rows also updates their counter, so that no list has to count the rows of a table.

CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE users (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id      text   NOT NULL UNIQUE,
    username    text   NOT NULL,
    username_lc text   NOT NULL UNIQUE,
    email       text   NOT NULL,
    email_lc    text   NOT NULL UNIQUE,
    created_at  bigint NOT NULL
);

-- settings: a JSON object of the attributes that are stored and returned, but have no effect.
CREATE TABLE organizations (
    id                  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id              text    NOT NULL UNIQUE,
    name                text    NOT NULL CHECK (length(name) BETWEEN 3 AND 40),
    name_lc             text    NOT NULL UNIQUE,
    email               text    NOT NULL,
    execution_mode      text    NOT NULL DEFAULT 'remote' CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id       bigint,
    user_tokens_enabled boolean NOT NULL DEFAULT TRUE,
    allow_force_delete  boolean NOT NULL DEFAULT FALSE,
    settings            text    NOT NULL DEFAULT '{}',
    project_count       bigint  NOT NULL DEFAULT 0,
    workspace_count     bigint  NOT NULL DEFAULT 0,
    created_at          bigint  NOT NULL,
    CONSTRAINT organizations_pool_mode CHECK ((execution_mode = 'agent') = (agent_pool_id IS NOT NULL))
);

-- scope: {"allowed-workspaces": [], "allowed-projects": [], "excluded-workspaces": []}.
CREATE TABLE agent_pools (
    id                  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id              text    NOT NULL UNIQUE,
    org_id              bigint  NOT NULL REFERENCES organizations ON DELETE CASCADE,
    name                text    NOT NULL,
    name_lc             text    NOT NULL,
    organization_scoped boolean NOT NULL DEFAULT TRUE,
    scope               text    NOT NULL DEFAULT '{}',
    created_at          bigint  NOT NULL,
    UNIQUE (org_id, name_lc),
    UNIQUE (id, org_id)
);
ALTER TABLE organizations ADD CONSTRAINT organizations_agent_pool_fk
    FOREIGN KEY (agent_pool_id, id) REFERENCES agent_pools (id, org_id);

CREATE TABLE organization_memberships (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id     text   NOT NULL UNIQUE,
    org_id     bigint NOT NULL REFERENCES organizations ON DELETE CASCADE,
    user_id    bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    status     text   NOT NULL CHECK (status IN ('active', 'invited')),
    created_at bigint NOT NULL,
    UNIQUE (user_id, org_id)
);
CREATE INDEX organization_memberships_org ON organization_memberships (org_id, id);

-- execution_mode: NULL inherits that of the organization.
CREATE TABLE projects (
    id              bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id          text    NOT NULL UNIQUE,
    org_id          bigint  NOT NULL REFERENCES organizations ON DELETE CASCADE,
    name            text    NOT NULL CHECK (length(name) BETWEEN 3 AND 40),
    name_lc         text    NOT NULL COLLATE "C",
    description     text    CHECK (length(description) <= 256),
    auto_destroy    text,
    execution_mode  text    CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id   bigint,
    is_default      boolean NOT NULL DEFAULT FALSE,
    workspace_count bigint  NOT NULL DEFAULT 0,
    team_count      bigint  NOT NULL DEFAULT 0,
    created_at      bigint  NOT NULL,
    CONSTRAINT projects_agent_pool_fk FOREIGN KEY (agent_pool_id, org_id) REFERENCES agent_pools (id, org_id),
    CONSTRAINT projects_pool_mode
        CHECK ((execution_mode IS NOT DISTINCT FROM 'agent') = (agent_pool_id IS NOT NULL)),
    -- Includes the id, so that an index-only scan finds a page in the order of names.
    CONSTRAINT projects_org_id_name_lc_key UNIQUE (org_id, name_lc) INCLUDE (id),
    UNIQUE (id, org_id)
);
CREATE UNIQUE INDEX projects_org_id_key ON projects (org_id) WHERE is_default;
CREATE INDEX projects_org_id_desc ON projects (org_id, id DESC);
CREATE INDEX projects_name_trgm ON projects USING gin (name_lc gin_trgm_ops);
CREATE INDEX projects_agent_pool ON projects (agent_pool_id) WHERE agent_pool_id IS NOT NULL;

-- execution_mode: NULL inherits that of the project. locked_by: 'users/user-…' or 'teams/team-…'; NULL if not locked.
CREATE TABLE workspaces (
    id                    bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id                text    NOT NULL UNIQUE,
    org_id                bigint  NOT NULL,
    project_id            bigint  NOT NULL,
    name                  text    NOT NULL CHECK (length(name) BETWEEN 1 AND 90),
    name_lc               text    NOT NULL,
    description           text,
    inherits_auto_destroy boolean NOT NULL DEFAULT TRUE,
    own_auto_destroy      text,
    auto_destroy_at       bigint,
    execution_mode        text    CHECK (execution_mode IN ('remote', 'local', 'agent')),
    agent_pool_id         bigint,
    terraform_version     text    NOT NULL DEFAULT 'latest',
    settings              text    NOT NULL DEFAULT '{}',
    locked_by             text,
    created_at            bigint  NOT NULL,
    updated_at            bigint  NOT NULL,
    CONSTRAINT workspaces_project_fk FOREIGN KEY (project_id, org_id) REFERENCES projects (id, org_id)
        ON DELETE RESTRICT,
    CONSTRAINT workspaces_agent_pool_fk FOREIGN KEY (agent_pool_id, org_id) REFERENCES agent_pools (id, org_id),
    CONSTRAINT workspaces_pool_mode
        CHECK ((execution_mode IS NOT DISTINCT FROM 'agent') = (agent_pool_id IS NOT NULL)),
    CONSTRAINT workspaces_auto_destroy CHECK (NOT (inherits_auto_destroy AND own_auto_destroy IS NOT NULL)),
    UNIQUE (org_id, name_lc)
);
CREATE INDEX workspaces_project ON workspaces (project_id, id);
CREATE INDEX workspaces_name_trgm ON workspaces USING gin (name_lc gin_trgm_ops);
CREATE INDEX workspaces_agent_pool ON workspaces (agent_pool_id) WHERE agent_pool_id IS NOT NULL;

-- The ids are in the order in which the tags were first set. A flat tag is a binding with an empty value.
CREATE TABLE tag_bindings (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id       text   NOT NULL UNIQUE,
    project_id   bigint REFERENCES projects ON DELETE CASCADE,
    workspace_id bigint REFERENCES workspaces ON DELETE CASCADE,
    key          text   NOT NULL,
    value        text   NOT NULL DEFAULT '',
    CONSTRAINT tag_bindings_one_owner CHECK ((project_id IS NULL) <> (workspace_id IS NULL)),
    UNIQUE (project_id, key),
    UNIQUE (workspace_id, key)
);
CREATE INDEX tag_bindings_key_value ON tag_bindings (key, value);

-- org_access: one bit per flag of organization-access.
CREATE TABLE teams (
    id            bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id        text    NOT NULL UNIQUE,
    org_id        bigint  NOT NULL REFERENCES organizations ON DELETE CASCADE,
    name          text    NOT NULL,
    name_lc       text    NOT NULL,
    is_owners     boolean NOT NULL DEFAULT FALSE,
    visibility    text    NOT NULL DEFAULT 'secret' CHECK (visibility IN ('secret', 'organization')),
    org_access    bigint  NOT NULL DEFAULT 0,
    sso_team_id   text,
    member_tokens boolean NOT NULL DEFAULT TRUE,
    user_count    bigint  NOT NULL DEFAULT 0,
    UNIQUE (org_id, name_lc)
);
CREATE UNIQUE INDEX teams_org_id_key ON teams (org_id) WHERE is_owners;

CREATE TABLE team_memberships (
    team_id bigint NOT NULL REFERENCES teams ON DELETE CASCADE,
    user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    PRIMARY KEY (user_id, team_id)
);
CREATE INDEX team_memberships_team ON team_memberships (team_id);

-- perm_bits: the permissions of the level or of the custom keys. custom: a JSON object of the keys of a custom level.
CREATE TABLE team_project_access (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id     text   NOT NULL UNIQUE,
    team_id    bigint NOT NULL REFERENCES teams ON DELETE CASCADE,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    access     text   NOT NULL CHECK (access IN ('read', 'write', 'maintain', 'admin', 'custom')),
    perm_bits  bigint NOT NULL,
    custom     text,
    -- Includes the bits, so that lists by permissions are index-only scans.
    CONSTRAINT team_project_access_team_id_project_id_key UNIQUE (team_id, project_id) INCLUDE (perm_bits)
);
CREATE INDEX team_project_access_project ON team_project_access (project_id, id);

-- API tokens of users, teams and organizations. lookup is the public part of the token. created_by remains when its
-- subject is deleted: 'users/user-…', 'teams/team-…' or 'organizations/<external id>'.
CREATE TABLE api_tokens (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id        text   NOT NULL UNIQUE,
    lookup        text   NOT NULL UNIQUE,
    secret_sha256 bytea  NOT NULL CHECK (length(secret_sha256) = 32),
    user_id       bigint REFERENCES users ON DELETE CASCADE,
    team_id       bigint REFERENCES teams ON DELETE CASCADE,
    org_id        bigint REFERENCES organizations ON DELETE CASCADE,
    kind          text   NOT NULL DEFAULT 'standard' CHECK (kind IN ('standard', 'audit-trails')),
    description   text,
    created_by    text   NOT NULL,
    created_at    bigint NOT NULL,
    last_used_at  bigint,
    expired_at    bigint,
    CONSTRAINT api_tokens_one_subject CHECK (
        CASE WHEN user_id IS NULL THEN 0 ELSE 1 END + CASE WHEN team_id IS NULL THEN 0 ELSE 1 END
        + CASE WHEN org_id IS NULL THEN 0 ELSE 1 END = 1),
    CONSTRAINT api_tokens_audit CHECK (kind = 'standard' OR org_id IS NOT NULL)
);
CREATE UNIQUE INDEX api_tokens_org_id_kind_key ON api_tokens (org_id, kind) WHERE org_id IS NOT NULL;
CREATE INDEX api_tokens_user ON api_tokens (user_id, id);
CREATE UNIQUE INDEX api_tokens_team_id_key ON api_tokens (team_id) WHERE description IS NULL;
CREATE UNIQUE INDEX api_tokens_team_id_description_key ON api_tokens (team_id, description);
