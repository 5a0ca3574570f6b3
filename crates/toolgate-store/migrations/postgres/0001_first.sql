-- One row for each session. `posted` is the number of its newest post, so that no number is given twice.
CREATE TABLE sessions (
    id          uuid   NOT NULL PRIMARY KEY,
    revision    bigint NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    fence       bigint NOT NULL,
    holder      text,
    lease_until bigint,
    posted      bigint NOT NULL
);

CREATE TABLE events (
    session  uuid   NOT NULL,
    sequence bigint NOT NULL,
    body     text   NOT NULL,
    PRIMARY KEY (session, sequence)
);

-- Keys are kept as bytes: they may hold any character, and their order is that of the bytes.
CREATE TABLE records (
    key  bytea NOT NULL PRIMARY KEY,
    body text  NOT NULL
);

CREATE TABLE posts (
    session uuid   NOT NULL,
    number  bigint NOT NULL,
    body    text   NOT NULL,
    PRIMARY KEY (session, number)
);

CREATE TABLE turns (
    turn       uuid   NOT NULL PRIMARY KEY,
    session    uuid   NOT NULL,
    opened_at  bigint NOT NULL,
    settled_at bigint
);
CREATE INDEX turns_by_session ON turns (session, turn);
CREATE INDEX turns_open ON turns (session, turn) WHERE settled_at IS NULL;

CREATE TABLE approvals (
    call     uuid   NOT NULL PRIMARY KEY,
    session  uuid   NOT NULL,
    turn     uuid   NOT NULL,
    tool     text   NOT NULL,
    asked_at bigint NOT NULL,
    state    text   NOT NULL,
    request  text   NOT NULL
);
CREATE INDEX approvals_by_session ON approvals (session, call);
CREATE INDEX approvals_by_tool ON approvals (tool, call);
CREATE INDEX approvals_pending ON approvals (call) WHERE state = 'pending';
CREATE INDEX approvals_pending_by_session ON approvals (session, call) WHERE state = 'pending';
CREATE INDEX approvals_pending_by_tool ON approvals (tool, call) WHERE state = 'pending';

-- The end of each chain, and its entries.
CREATE TABLE ledgers (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    counter bigint NOT NULL,
    hash    bytea  NOT NULL
);

CREATE TABLE entries (
    ledger   text COLLATE "C" NOT NULL,
    counter  bigint NOT NULL,
    previous bytea  NOT NULL,
    hash     bytea  NOT NULL,
    body     text   NOT NULL,
    PRIMARY KEY (ledger, counter)
);

-- Blobs lie in pieces of 256 KiB, so that a part can be read without the rest.
CREATE TABLE blobs (
    digest bytea  NOT NULL PRIMARY KEY,
    size   bigint NOT NULL
);

CREATE TABLE blob_pieces (
    digest bytea  NOT NULL,
    number bigint NOT NULL,
    bytes  bytea  NOT NULL,
    PRIMARY KEY (digest, number)
);
ALTER TABLE blob_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL;
