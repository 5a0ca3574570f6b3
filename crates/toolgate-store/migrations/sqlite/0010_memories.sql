-- Memories: texts that outlive their session. `body` is the whole memory as JSON; the other columns are for finding it.
-- `key` is a digest of owner, scope and normalised text, so the same content is stored once. The vector belongs to the
-- embedder that is named beside it.
CREATE TABLE memories (
    id         BLOB    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    key        BLOB    NOT NULL,
    kind       TEXT    NOT NULL,
    session    BLOB,
    expires_at INTEGER,
    body       TEXT    NOT NULL,
    checksum   INTEGER NOT NULL,
    embedder   TEXT,
    vector     BLOB
) WITHOUT ROWID;
CREATE UNIQUE INDEX memories_by_key ON memories (key);
CREATE INDEX memories_by_scope ON memories (owner, scope, id);
CREATE INDEX memories_by_session ON memories (session) WHERE session IS NOT NULL;
CREATE INDEX memories_by_expiry ON memories (expires_at) WHERE expires_at IS NOT NULL;
