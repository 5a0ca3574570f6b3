-- What was spent from each account and what is set aside in it. Keys are kept as bytes, like those of records.
CREATE TABLE accounts (
    key      bytea  NOT NULL PRIMARY KEY,
    spent    bigint NOT NULL,
    reserved bigint NOT NULL
);

-- Charges that are open. One that is settled or released is not here any more.
CREATE TABLE charges (
    id      text COLLATE "C" NOT NULL PRIMARY KEY,
    session uuid,
    body    text NOT NULL
);
CREATE INDEX charges_by_session ON charges (session, id);
