-- The search index: a projection of the events, which is filled behind them and can be rebuilt at any time. `indexed` is
-- the number of the last event of a session that is in it, and `indexed_title` the title that is.
ALTER TABLE sessions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN indexed_title TEXT;
ALTER TABLE sessions ADD COLUMN is_retitled INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_stale ON sessions (id) WHERE revision > indexed OR is_retitled = 1;

-- The text of a document is in its event. The id is made from the time, so that newer documents have higher ids.
CREATE TABLE search_documents (
    id       INTEGER NOT NULL PRIMARY KEY,
    session  BLOB    NOT NULL,
    sequence INTEGER NOT NULL,
    project  TEXT,
    at       INTEGER NOT NULL,
    embedded INTEGER NOT NULL DEFAULT 0,
    counts   BLOB    NOT NULL
);
CREATE UNIQUE INDEX search_documents_by_event ON search_documents (session, sequence);
CREATE INDEX search_documents_by_embedder ON search_documents (embedded, id);

-- Words, names in one piece, and facts such as the tool; already split, so `ascii` finds exactly these words. The table
-- stores no text, and what is deleted from it is not left in its pages.
CREATE VIRTUAL TABLE search_index USING fts5 (words, names, facets, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO search_index (search_index, rank) VALUES ('secure-delete', 1);

CREATE TABLE search_state (
    one       INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    version   INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    words     INTEGER NOT NULL,
    erasures  INTEGER NOT NULL
);
INSERT INTO search_state (one, version, documents, words, erasures) VALUES (1, 0, 0, 0, 0);

-- One vector for each document. The newest embedder has the highest number.
CREATE TABLE search_embedders (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name   TEXT    NOT NULL UNIQUE
);
CREATE TABLE search_vectors (
    number   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL UNIQUE,
    embedder INTEGER NOT NULL,
    vector   BLOB    NOT NULL
);
-- The signs of each vector, apart from the vectors, so that they are read quickly.
CREATE TABLE search_signs (
    number   INTEGER NOT NULL PRIMARY KEY,
    document INTEGER NOT NULL,
    embedder INTEGER NOT NULL,
    signs    BLOB    NOT NULL
);
