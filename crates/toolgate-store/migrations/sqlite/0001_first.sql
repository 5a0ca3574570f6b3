-- One row for each session. `posted` is the number of its newest post, so that no number is given twice.
CREATE TABLE sessions (
    id          BLOB    NOT NULL PRIMARY KEY,
    revision    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    holder      TEXT,
    lease_until INTEGER,
    posted      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
    session  BLOB    NOT NULL,
    sequence INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (session, sequence)
) WITHOUT ROWID;

CREATE TABLE records (
    key  TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE posts (
    session BLOB    NOT NULL,
    number  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

CREATE TABLE turns (
    turn       BLOB    NOT NULL PRIMARY KEY,
    session    BLOB    NOT NULL,
    opened_at  INTEGER NOT NULL,
    settled_at INTEGER
) WITHOUT ROWID;
CREATE INDEX turns_by_session ON turns (session, turn);
CREATE INDEX turns_open ON turns (session, turn) WHERE settled_at IS NULL;

CREATE TABLE approvals (
    call     BLOB    NOT NULL PRIMARY KEY,
    session  BLOB    NOT NULL,
    turn     BLOB    NOT NULL,
    tool     TEXT    NOT NULL,
    asked_at INTEGER NOT NULL,
    state    TEXT    NOT NULL,
    request  TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX approvals_by_session ON approvals (session, call);
CREATE INDEX approvals_by_tool ON approvals (tool, call);
CREATE INDEX approvals_pending ON approvals (call) WHERE state = 'pending';
CREATE INDEX approvals_pending_by_session ON approvals (session, call) WHERE state = 'pending';
CREATE INDEX approvals_pending_by_tool ON approvals (tool, call) WHERE state = 'pending';

-- The end of each chain, and its entries.
CREATE TABLE ledgers (
    name    TEXT    NOT NULL PRIMARY KEY,
    counter INTEGER NOT NULL,
    hash    BLOB    NOT NULL
) WITHOUT ROWID;

CREATE TABLE entries (
    ledger   TEXT    NOT NULL,
    counter  INTEGER NOT NULL,
    previous BLOB    NOT NULL,
    hash     BLOB    NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (ledger, counter)
) WITHOUT ROWID;

-- Blobs lie in pieces of 256 KiB, so that a part can be read without the rest.
CREATE TABLE blobs (
    digest BLOB    NOT NULL PRIMARY KEY,
    size   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE blob_pieces (
    id     INTEGER PRIMARY KEY,
    digest BLOB    NOT NULL,
    number INTEGER NOT NULL,
    bytes  BLOB    NOT NULL,
    UNIQUE (digest, number)
);
