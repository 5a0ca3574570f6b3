-- The provider of the model that replied last, which an event has apart from the name of the model.
ALTER TABLE sessions ADD COLUMN provider text;
UPDATE sessions SET provider = (
    SELECT body::json ->> 'provider' FROM events
    WHERE session = sessions.id AND body::json ->> 'type' = 'inference_finished' AND body::json ->> 'model' IS NOT NULL
    ORDER BY sequence DESC LIMIT 1
)
WHERE model IS NOT NULL;
