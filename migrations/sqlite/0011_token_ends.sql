-- One index for both the tokens of a mount and expired tokens, because each further index slows down logins.

DROP INDEX token_mount;
DROP INDEX token_end;
CREATE INDEX token_mount_end ON token (mount, expires_at_micros);
