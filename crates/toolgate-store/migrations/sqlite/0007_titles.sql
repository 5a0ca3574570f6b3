-- The title, the directory and the last use of a session. Each use of any session gets a higher number than all before it,
-- whatever the clock says. For sessions that exist already the title is their first message, the directory is what the
-- command line stored, and the order of use is that of their last events.
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN directory TEXT;
ALTER TABLE sessions ADD COLUMN last_use INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET title = (
    SELECT substr(trim(replace(replace(body ->> '$.text', char(13), ' '), char(10), ' ')), 1, 120) FROM events
    WHERE session = sessions.id AND body ->> '$.type' = 'user_message' AND body ->> '$.text' IS NOT NULL
      AND coalesce(body ->> '$.steering', 0) = 0
    ORDER BY sequence LIMIT 1
);
UPDATE sessions SET directory = (
    SELECT body ->> '$.json.workspace' FROM records
    WHERE key = 'other/workspace-of/' || lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-'
        || substr(hex(id), 13, 4) || '-' || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21))
);
UPDATE sessions SET last_use = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY updated_at, id) AS number FROM sessions WHERE revision > 0) AS numbered
WHERE sessions.id = numbered.id;
CREATE INDEX sessions_by_use ON sessions (last_use);
CREATE INDEX sessions_by_directory ON sessions (directory, last_use) WHERE directory IS NOT NULL;
DELETE FROM records WHERE key >= 'other/workspace-of/' AND key < 'other/workspace-of0';
DELETE FROM records WHERE key >= 'other/workspace/' AND key < 'other/workspace0';
