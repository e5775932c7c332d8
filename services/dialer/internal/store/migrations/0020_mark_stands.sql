-- +goose Up
-- Whether this database is still the one that its mark was made on, asked by the statement that permits a dial: dialers look at the mark once a second, and a failover may be quicker than
-- that. A server that does not tell its timeline (classes 0A and 42) counts as the same one, as it does for them.
-- +goose StatementBegin
CREATE FUNCTION mark_stands() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM told_until t WHERE t.timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8));
EXCEPTION WHEN feature_not_supported OR syntax_error_or_access_rule_violation THEN
    RETURN true;
END;
$$;
-- +goose StatementEnd
