-- Memories: texts that outlive their session. `body` is the whole memory as JSON; the other columns are for finding it.
-- `key` is a digest of owner, scope and normalised text, so the same content is stored once. The vector belongs to the
-- embedder that is named beside it. Owner and scope are kept as bytes: they may hold any character.
CREATE TABLE memories (
    id         uuid   NOT NULL PRIMARY KEY,
    owner      bytea  NOT NULL,
    scope      bytea  NOT NULL,
    key        bytea  NOT NULL,
    kind       text   NOT NULL,
    session    uuid,
    expires_at bigint,
    body       text   NOT NULL,
    checksum   bigint NOT NULL,
    embedder   text,
    vector     bytea
);
CREATE UNIQUE INDEX memories_by_key ON memories (key);
CREATE INDEX memories_by_scope ON memories (owner, scope, id);
CREATE INDEX memories_by_session ON memories (session) WHERE session IS NOT NULL;
CREATE INDEX memories_by_expiry ON memories (expires_at) WHERE expires_at IS NOT NULL;
