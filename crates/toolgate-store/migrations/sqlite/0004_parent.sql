-- The session whose call started this one, if it is the session of an agent. Such a session has the id of the call, so
-- for sessions that exist already it is found in the log that requested the call.
ALTER TABLE sessions ADD COLUMN parent BLOB;
UPDATE sessions SET parent = requested.session
FROM (
    SELECT session, unhex(replace(substr(body, instr(body, '"invocation_id":"') + 17, 36), '-', '')) AS id
    FROM events WHERE body LIKE '%"type":"tool_requested"%'
) AS requested
WHERE sessions.id = requested.id;
