-- The access of teams to individual workspaces. custom: a JSON object of the keys of a custom level. Nodes of the
-- previous version do not know the table and grant less; their deletions of teams and workspaces cascade to it.
CREATE TABLE team_workspace_access (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ext_id       text   NOT NULL UNIQUE,
    team_id      bigint NOT NULL REFERENCES teams ON DELETE CASCADE,
    workspace_id bigint NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    access       text   NOT NULL CHECK (access IN ('read', 'plan', 'write', 'admin', 'custom')),
    custom       text,
    CONSTRAINT team_workspace_access_team_id_workspace_id_key UNIQUE (team_id, workspace_id)
);
CREATE INDEX team_workspace_access_workspace ON team_workspace_access (workspace_id, id);
