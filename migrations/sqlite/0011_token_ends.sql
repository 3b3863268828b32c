-- One index for the tokens that end with a mount and for those that have ended: every further one costs a login.

DROP INDEX token_mount;
DROP INDEX token_end;
CREATE INDEX token_mount_end ON token (mount, expires_at_micros);
