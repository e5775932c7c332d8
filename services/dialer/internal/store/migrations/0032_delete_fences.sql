-- +goose Up

-- The retention job deletes a fence with its request after 60 days (ADR 12). No statement can delete a younger one.
-- +goose StatementBegin
CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'fence of call % is younger than 60 days', OLD.call_id USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER fences_young BEFORE DELETE ON fences FOR EACH ROW
    WHEN (OLD.fenced_at > now() - interval '60 days') EXECUTE FUNCTION refuse_deletion();
GRANT DELETE ON fences TO dialer_app;
