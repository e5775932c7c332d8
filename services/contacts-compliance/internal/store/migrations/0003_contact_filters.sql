-- +goose Up

-- The list of contacts has the filters email and external_id.
CREATE INDEX contacts_email ON contacts (workspace_id, email, dnd_status, consent_status, uuid_send(id))
    WHERE email IS NOT NULL;
CREATE INDEX contacts_external_id ON contacts (workspace_id, external_id, dnd_status, consent_status, uuid_send(id))
    WHERE external_id IS NOT NULL;
