-- The principal, the labels and the last run of a session. For sessions that exist already they are found in the log,
-- except labels, which no older version wrote.
ALTER TABLE sessions ADD COLUMN principal TEXT;
ALTER TABLE sessions ADD COLUMN labels TEXT;
ALTER TABLE sessions ADD COLUMN run INTEGER;
ALTER TABLE sessions ADD COLUMN run_state TEXT;
ALTER TABLE sessions ADD COLUMN run_at INTEGER;
UPDATE sessions SET principal = (
    SELECT body ->> '$.principal' FROM events
    WHERE session = sessions.id AND body ->> '$.principal' IS NOT NULL
      AND body ->> '$.type' IN ('user_message', 'inference_started', 'run_ended', 'turn_opened')
    ORDER BY sequence DESC LIMIT 1
);
UPDATE sessions SET (run, run_state, run_at) = (
    SELECT body ->> '$.run',
           CASE body ->> '$.type' WHEN 'run_ended' THEN body ->> '$.end' ELSE 'running' END,
           strftime('%s', substr(body ->> '$.at', 1, 19)) * 1000000 + substr(body ->> '$.at', 21, 6)
    FROM events
    WHERE session = sessions.id AND body ->> '$.run' IS NOT NULL
      AND body ->> '$.type' IN ('user_message', 'inference_started', 'run_ended')
    ORDER BY sequence DESC LIMIT 1
);
CREATE INDEX sessions_by_principal ON sessions (principal, id) WHERE principal IS NOT NULL;
CREATE INDEX sessions_unfinished ON sessions (id) WHERE run_state IN ('running', 'suspended');
