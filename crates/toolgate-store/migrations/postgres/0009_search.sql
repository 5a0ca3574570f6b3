-- The search index: a projection of the events, which is filled behind them and can be rebuilt at any time. `indexed` is
-- the number of the last event of a session that is in it, and `indexed_title` the title that is.
ALTER TABLE sessions ADD COLUMN indexed bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN indexed_title text;
ALTER TABLE sessions ADD COLUMN is_retitled boolean NOT NULL DEFAULT false;

-- The text of a document is in its event. The id is made from the time, so that newer documents have higher ids. The
-- lexemes are words, names in one piece (with =) and facts such as the tool (with :), split by this program.
CREATE TABLE search_documents (
    id       bigint   NOT NULL PRIMARY KEY,
    session  uuid     NOT NULL,
    sequence bigint   NOT NULL,
    project  text,
    at       bigint   NOT NULL,
    embedded bigint   NOT NULL DEFAULT 0,
    counts   bytea    NOT NULL,
    lexemes  tsvector NOT NULL
);
CREATE UNIQUE INDEX search_documents_by_event ON search_documents (session, sequence);
CREATE INDEX search_documents_by_embedder ON search_documents (embedded, id);
CREATE INDEX search_documents_by_lexeme ON search_documents USING gin (lexemes);

CREATE TABLE search_state (
    one       integer NOT NULL PRIMARY KEY CHECK (one = 1),
    version   bigint  NOT NULL,
    documents bigint  NOT NULL,
    words     bigint  NOT NULL,
    erasures  bigint  NOT NULL
);
INSERT INTO search_state (one, version, documents, words, erasures) VALUES (1, 0, 0, 0, 0);

-- One vector for each document. The newest embedder has the highest number.
CREATE TABLE search_embedders (
    number bigserial NOT NULL PRIMARY KEY,
    name   text      NOT NULL UNIQUE
);
CREATE TABLE search_vectors (
    number   bigserial NOT NULL PRIMARY KEY,
    document bigint    NOT NULL UNIQUE,
    embedder bigint    NOT NULL,
    vector   bytea     NOT NULL
);
-- The signs of each vector, apart from the vectors, so that they are read quickly.
CREATE TABLE search_signs (
    number   bigint NOT NULL PRIMARY KEY,
    document bigint NOT NULL,
    embedder bigint NOT NULL,
    signs    bytea  NOT NULL
);
