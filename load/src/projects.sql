-- The organization of the scenario `projects`. The statements are sent together and are one transaction. External ids
-- are base 58, which has no 0.
INSERT INTO organizations (ext_id, name, name_lc, email, project_count, workspace_count, created_at)
VALUES ('org-loadloadloadload', ':ORGANIZATION', ':ORGANIZATION', 'o@load.test', :MANY, :MANY,
        (extract(epoch FROM now()) * 1000000)::bigint);

-- The owner is the user of the server's root token.
INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
SELECT 'ou-loadloadloadload', o.id, u.id, 'active', o.created_at
FROM organizations o, users u WHERE o.name_lc = ':ORGANIZATION' AND u.username_lc = 'dev';

INSERT INTO teams (ext_id, org_id, name, name_lc, is_owners, org_access, user_count)
SELECT t.ext_id, o.id, t.name, t.name, t.is_owners, t.org_access, t.user_count
FROM organizations o,
     (VALUES ('team-loadownerloadXX', 'owners', TRUE, 65535, 1), (':READERS', 'readers', FALSE, 0, 0))
         t (ext_id, name, is_owners, org_access, user_count)
WHERE o.name_lc = ':ORGANIZATION';

INSERT INTO team_memberships (team_id, user_id)
SELECT t.id, u.id FROM teams t, users u WHERE t.ext_id = 'team-loadownerloadXX' AND u.username_lc = 'dev';

INSERT INTO projects (ext_id, org_id, name, name_lc, is_default, workspace_count, team_count, created_at)
SELECT 'prj-' || translate(lpad(n::text, 16, 'z'), '0', 'A'), o.id, 'svc-' || h, 'svc-' || h, n = 1,
       CASE WHEN n = 1 THEN :LARGE WHEN n <= :LARGE THEN 0 ELSE 1 END, CASE WHEN n % :EVERY = 0 THEN 1 ELSE 0 END,
       o.created_at
FROM organizations o,
     (SELECT n, to_hex(n::bigint * :SCATTER % 4294967296) || '-' || n AS h FROM generate_series(1, :MANY) n) s
WHERE o.name_lc = ':ORGANIZATION'
ORDER BY n;

INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, created_at, updated_at)
SELECT 'ws-' || translate(lpad(n::text, 16, 'z'), '0', 'A'), o.id,
       o.first_project + CASE WHEN n <= :LARGE THEN 0 ELSE n - 1 END, 'ws-' || n, 'ws-' || n, o.created_at, o.created_at
FROM generate_series(1, :MANY) n,
     (SELECT o.id, o.created_at, (SELECT min(p.id) FROM projects p WHERE p.org_id = o.id) AS first_project
      FROM organizations o WHERE o.name_lc = ':ORGANIZATION') o;

INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
SELECT 'tprj-' || translate(lpad(n::text, 16, 'z'), '0', 'A'), t.id, t.first_project + n - 1,
       CASE WHEN n % 2 = 0 THEN 'admin' ELSE 'read' END, CASE WHEN n % 2 = 0 THEN 63 ELSE 1 END
FROM generate_series(:EVERY, :MANY, :EVERY) n,
     (SELECT t.id, (SELECT min(p.id) FROM projects p WHERE p.org_id = t.org_id) AS first_project
      FROM teams t WHERE t.ext_id = ':READERS') t;
