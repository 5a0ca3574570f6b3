-- Rows of a table with rowids may be as long as a page, those of a table without them a quarter of it: entries of pages of
-- 2 KiB had a second page each.
CREATE TABLE appended_entries (
    ledger   TEXT    NOT NULL,
    counter  INTEGER NOT NULL,
    previous BLOB    NOT NULL,
    hash     BLOB    NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (ledger, counter)
);
INSERT INTO appended_entries (ledger, counter, previous, hash, body)
    SELECT ledger, counter, previous, hash, body FROM entries ORDER BY ledger, counter;
DROP TABLE entries;
ALTER TABLE appended_entries RENAME TO entries;
