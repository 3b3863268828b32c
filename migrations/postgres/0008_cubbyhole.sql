-- What tokens keep for themselves, and the answers that are wrapped in a token: it goes with the token. Bodies are
-- sealed. The path of a wrapped answer is empty, which no other is.
CREATE TABLE cubbyhole (
    token BYTEA NOT NULL REFERENCES token (hash) ON DELETE CASCADE,
    path  TEXT COLLATE "C" NOT NULL,
    body  BYTEA NOT NULL,
    PRIMARY KEY (token, path)
);
