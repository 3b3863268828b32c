-- What tokens keep for themselves, and the answers that are wrapped in a token: it goes with the token. Bodies are
-- sealed. The path of a wrapped answer is empty, which no other is.
CREATE TABLE cubbyhole (
    token BLOB NOT NULL REFERENCES token (hash) ON DELETE CASCADE,
    path  TEXT NOT NULL,
    body  BLOB NOT NULL,
    PRIMARY KEY (token, path)
) STRICT;
