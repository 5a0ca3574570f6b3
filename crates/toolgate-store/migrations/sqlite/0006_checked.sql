-- The checksum of a row: the first 8 bytes of the SHA-256 of its table, key and body, as stored. It is null in rows that
-- were written before, which are not checked.
ALTER TABLE events ADD COLUMN checksum INTEGER;
ALTER TABLE records ADD COLUMN checksum INTEGER;
