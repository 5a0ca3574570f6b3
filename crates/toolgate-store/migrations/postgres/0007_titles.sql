-- The title, the directory and the last use of a session. Each use of any session gets a higher number than all before it,
-- whatever the clock says. For sessions that exist already the title is their first message, the directory is what the
-- command line stored, and the order of use is that of their last events.
ALTER TABLE sessions ADD COLUMN title text;
ALTER TABLE sessions ADD COLUMN directory text;
ALTER TABLE sessions ADD COLUMN last_use bigint NOT NULL DEFAULT 0;
UPDATE sessions SET title = (
    SELECT substr(trim(translate(body::json ->> 'text', E'\r\n', '  ')), 1, 120) FROM events
    WHERE session = sessions.id AND body::json ->> 'type' = 'user_message' AND body::json ->> 'text' IS NOT NULL
      AND coalesce(body::json ->> 'steering', 'false') = 'false'
    ORDER BY sequence LIMIT 1
);
UPDATE sessions SET directory = records.body::json -> 'json' ->> 'workspace'
FROM records WHERE records.key = convert_to('other/workspace-of/' || sessions.id::text, 'UTF8');
UPDATE sessions SET last_use = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY updated_at, id) AS number FROM sessions WHERE revision > 0) AS numbered
WHERE sessions.id = numbered.id;
-- A sequence and not the highest number in the table: two processes that use two sessions must not wait for each other.
CREATE SEQUENCE session_uses;
SELECT setval('session_uses', (SELECT max(last_use) + 1 FROM sessions), false) FROM sessions LIMIT 1;
CREATE INDEX sessions_by_use ON sessions (last_use);
CREATE INDEX sessions_by_directory ON sessions (directory, last_use) WHERE directory IS NOT NULL;
DELETE FROM records WHERE key >= 'other/workspace-of/'::bytea AND key < 'other/workspace-of0'::bytea;
DELETE FROM records WHERE key >= 'other/workspace/'::bytea AND key < 'other/workspace0'::bytea;
