-- The access of teams to single workspaces. custom: the keys of a custom level, a JSON object. Nodes of the version before
-- do not know the table: they grant less, and what they delete takes its rows along.
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
