-- +goose Up

-- The same identity as before. PL/pgSQL keeps the plan of its expression for the session. An SQL function is planned
-- again in each statement that calls it, and every claim, fence and batch of events does.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION server_identity() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
        substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), extract(epoch FROM pg_postmaster_start_time()));
END
$$;
-- +goose StatementEnd
