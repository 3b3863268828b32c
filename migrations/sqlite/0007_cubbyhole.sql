-- Private entries of tokens, and responses wrapped in a token. They are removed together with the token. Bodies are
-- sealed. Only a wrapped response has an empty path.
CREATE TABLE cubbyhole (
    token BLOB NOT NULL REFERENCES token (hash) ON DELETE CASCADE,
    path  TEXT NOT NULL,
    body  BLOB NOT NULL,
    PRIMARY KEY (token, path)
) STRICT;
