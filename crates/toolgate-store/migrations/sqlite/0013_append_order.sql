-- Rows of a table with rowids are appended to its last page. In a table without them every row is inserted in the order of
-- its key, and SQLite then writes the pages beside it, too.
CREATE TABLE appended_events (
    session  BLOB    NOT NULL,
    sequence INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (session, sequence)
);
INSERT INTO appended_events (session, sequence, body, checksum)
    SELECT session, sequence, body, checksum FROM events ORDER BY session, sequence;
DROP TABLE events;
ALTER TABLE appended_events RENAME TO events;

-- The key of a record that belongs to a session, a turn or a call is its id in 16 bytes, a byte for the kind, and the rest of
-- the name: those of one turn are beside each other, and short. Other keys stay as they are. Checksums cover the name.
-- The table has a new name, so that a program of an earlier version that still has the file open fails, and does not miss
-- records or write them a second time.
CREATE TABLE keyed_records (
    key      BLOB NOT NULL PRIMARY KEY,
    body     TEXT NOT NULL,
    checksum INTEGER
);
WITH kinds (word, code, behind) AS (
    VALUES ('outcome', x'01', 0), ('requests', x'02', 0), ('ended', x'03', 0), ('successor', x'04', 0),
           ('question', x'05', 1), ('answer', x'06', 1), ('result', x'07', 1), ('layer', x'08', 1),
           ('message', x'09', 1), ('run', x'0a', 1)
)
INSERT INTO keyed_records (key, body, checksum)
    SELECT coalesce(
               CAST(unhex(replace(substr(key, length(word) + 2, 36), '-', '')) || code
                    || substr(CAST(key AS BLOB), length(word) + 38 + behind) AS BLOB),
               key
           ), body, checksum
    FROM records LEFT JOIN kinds ON word = substr(key, 1, instr(key, '/') - 1)
    ORDER BY key;
DROP TABLE records;

-- The turns of a session are beside each other, which needs no index of its own. A turn belongs to its session: another one
-- cannot replace its row.
CREATE TABLE session_turns (
    turn       BLOB    NOT NULL,
    session    BLOB    NOT NULL,
    opened_at  INTEGER NOT NULL,
    settled_at INTEGER,
    PRIMARY KEY (session, turn)
) WITHOUT ROWID;
INSERT INTO session_turns (turn, session, opened_at, settled_at)
    SELECT turn, session, opened_at, settled_at FROM turns;
DROP TABLE turns;
ALTER TABLE session_turns RENAME TO turns;
-- With all columns: otherwise SQLite reads the settled turns of a session, too.
CREATE INDEX turns_open ON turns (session, turn, opened_at, settled_at) WHERE settled_at IS NULL;

-- Whether the search index is behind the log or the title of a session. A column of its own, because an index whose
-- condition names the revision is written with every event.
ALTER TABLE sessions ADD COLUMN is_behind INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET is_behind = 1 WHERE revision > indexed OR is_retitled = 1;
DROP INDEX sessions_stale;
CREATE INDEX sessions_behind ON sessions (id) WHERE is_behind = 1;
