-- What was spent from each account and what is set aside in it. The key is the text of its name.
CREATE TABLE accounts (
    key      TEXT    NOT NULL PRIMARY KEY,
    spent    INTEGER NOT NULL,
    reserved INTEGER NOT NULL
) WITHOUT ROWID;

-- Charges that are open. One that is settled or released is not here any more.
CREATE TABLE charges (
    id      TEXT NOT NULL PRIMARY KEY,
    session BLOB,
    body    TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX charges_by_session ON charges (session, id);
