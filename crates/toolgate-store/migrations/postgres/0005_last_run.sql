-- The principal, the labels and the last run of a session. For sessions that exist already they are found in the log,
-- except labels, which no older version wrote.
ALTER TABLE sessions ADD COLUMN principal text;
ALTER TABLE sessions ADD COLUMN labels text;
ALTER TABLE sessions ADD COLUMN run bigint;
ALTER TABLE sessions ADD COLUMN run_state text;
ALTER TABLE sessions ADD COLUMN run_at bigint;
UPDATE sessions SET principal = (
    SELECT body::json ->> 'principal' FROM events
    WHERE session = sessions.id AND body::json ->> 'principal' IS NOT NULL
      AND body::json ->> 'type' IN ('user_message', 'inference_started', 'run_ended', 'turn_opened')
    ORDER BY sequence DESC LIMIT 1
);
UPDATE sessions SET (run, run_state, run_at) = (
    SELECT (body::json ->> 'run')::bigint,
           CASE body::json ->> 'type' WHEN 'run_ended' THEN body::json ->> 'end' ELSE 'running' END,
           (extract(epoch FROM (body::json ->> 'at')::timestamptz) * 1000000)::bigint
    FROM events
    WHERE session = sessions.id AND body::json ->> 'run' IS NOT NULL
      AND body::json ->> 'type' IN ('user_message', 'inference_started', 'run_ended')
    ORDER BY sequence DESC LIMIT 1
);
CREATE INDEX sessions_by_principal ON sessions (principal, id) WHERE principal IS NOT NULL;
CREATE INDEX sessions_unfinished ON sessions (id) WHERE run_state IN ('running', 'suspended');
