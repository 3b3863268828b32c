-- The organization of a team beside each of its members: who is in ten thousand teams of other organizations is not
-- looked up through all of them. It is a hint: what counts is the team's own, which changes when a team is deleted.
-- Nodes of the version before do not know the column; the trigger fills it in for them.

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
