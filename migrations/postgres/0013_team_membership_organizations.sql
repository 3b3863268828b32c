-- The organization of the team in each membership. So the query for the teams of a user in an organization does not
-- visit the user's teams in other organizations. This copy is only a hint: the organization of the team itself counts.
-- Nodes of the previous version do not know the column; the trigger sets it for them.

ALTER TABLE team_memberships ADD COLUMN org_id bigint;

CREATE FUNCTION team_memberships_org_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.org_id := (SELECT org_id FROM teams WHERE id = NEW.team_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER team_memberships_org_id BEFORE INSERT ON team_memberships
    FOR EACH ROW WHEN (NEW.org_id IS NULL) EXECUTE FUNCTION team_memberships_org_id();

UPDATE team_memberships m SET org_id = t.org_id FROM teams t WHERE t.id = m.team_id;
CREATE INDEX team_memberships_user ON team_memberships (user_id, org_id, team_id);
