-- +goose Up
-- The numbers of an import are part of its record once there is one: then the running service can take none away, nor the import's row that
-- leads to them. Nobody but a superuser can leave these triggers out.
-- +goose StatementBegin
CREATE FUNCTION import_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what an import with a record holds is kept' USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION import_list_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM opt_out_imports i WHERE i.record_id IS NOT NULL AND i.id IN (SELECT g.import_id FROM gone g)) THEN
        RAISE EXCEPTION 'the list of an import with a record is kept' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER opt_out_imports_kept BEFORE UPDATE OR DELETE ON opt_out_imports FOR EACH ROW WHEN (OLD.record_id IS NOT NULL) EXECUTE FUNCTION import_kept();
CREATE TRIGGER opt_out_import_numbers_kept AFTER DELETE ON opt_out_import_numbers REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION import_list_kept();
REVOKE TRUNCATE ON opt_out_imports FROM contacts_compliance_app;
