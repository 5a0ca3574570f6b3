-- The checksum of a row, as in events and records. That of a session covers what no event says: its fence, the holder of
-- its lease, the number of its newest post, since when it is hidden, its parent and its directory. It is null in rows that
-- were written before, which are not checked until they change.
ALTER TABLE sessions ADD COLUMN checksum bigint;
ALTER TABLE posts ADD COLUMN checksum bigint;
ALTER TABLE accounts ADD COLUMN checksum bigint;
ALTER TABLE charges ADD COLUMN checksum bigint;
