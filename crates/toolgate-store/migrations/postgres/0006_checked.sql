-- The processes that write, each with the number of the last group that it committed. A process that lost the answer to
-- a commit finds here whether the group is in the database.
CREATE TABLE writers (
    id           uuid        NOT NULL PRIMARY KEY,
    last_group   bigint      NOT NULL,
    committed_at timestamptz NOT NULL
);

-- The checksum of a row: the first 8 bytes of the SHA-256 of its table, key and body, as stored. It is null in rows that
-- were written before, which are not checked.
ALTER TABLE events ADD COLUMN checksum bigint;
ALTER TABLE records ADD COLUMN checksum bigint;
