-- +goose Up

-- Decisions lie in months (UTC) of judged_at, as consent records lie in those of recorded_at; <table>_rest takes what no month takes.
ALTER TABLE decisions RENAME TO decisions_unmonthed;
ALTER INDEX decisions_pkey RENAME TO decisions_unmonthed_pkey;
DROP INDEX decisions_request, decisions_number;
CREATE TABLE decisions (LIKE decisions_unmonthed INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (judged_at);
CREATE TABLE decisions_rest PARTITION OF decisions DEFAULT;
ALTER TABLE decisions ADD PRIMARY KEY (workspace_id, id, judged_at);
CREATE INDEX decisions_request ON decisions (workspace_id, call_request_id, id);
CREATE INDEX decisions_number ON decisions (workspace_id, phone_e164, id DESC);
REVOKE UPDATE, DELETE, TRUNCATE ON decisions FROM contacts_compliance_app;
REVOKE ALL ON decisions_rest FROM contacts_compliance_app;

-- Only the schema's owner may make and drop tables; the service does it through the functions below, which know these two tables only,
-- one table in one transaction. The advisory lock lets replicas go one after another; whoever finds it done does nothing. lock_timeout
-- bounds how long everybody else waits behind the exclusive lock that is being waited for.

-- +goose StatementBegin
CREATE FUNCTION months_key(parent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE parent
        WHEN 'consent_records' THEN RETURN 'recorded_at';
        WHEN 'decisions' THEN RETURN 'judged_at';
        ELSE RAISE EXCEPTION '% does not lie in months', parent USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
-- +goose StatementEnd

-- Makes the partition of the month that begins on the day; false when it is there. What lay in the default partition of that month moves
-- over, behind an exclusive lock; without such rows nobody who reads or writes other months waits.
-- +goose StatementBegin
CREATE FUNCTION months_add(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = contacts_compliance, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    key   text := months_key(parent);
    name  text := parent || '_' || to_char(month, 'YYYYMM');
    since timestamptz := date_trunc('month', month::timestamp) AT TIME ZONE 'UTC';
    until timestamptz := (date_trunc('month', month::timestamp) + interval '1 month') AT TIME ZONE 'UTC';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('contacts_compliance months', 0));
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
    EXECUTE format('REVOKE ALL ON %I FROM contacts_compliance_app', name);
    BEGIN
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, since, until);
    EXCEPTION WHEN check_violation THEN -- the default partition holds rows of that month
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
        EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.%I >= $1 AND o.%I < $2', name, parent || '_rest', key, key) USING since, until;
        EXECUTE format('DELETE FROM %I o WHERE o.%I >= $1 AND o.%I < $2', parent || '_rest', key, key) USING since, until;
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, since, until);
    END;
    RETURN true;
END $$;
-- +goose StatementEnd

-- The oldest month that ended before the given day; null when there is none.
-- +goose StatementBegin
CREATE FUNCTION months_oldest(parent text, before date) RETURNS date LANGUAGE sql STABLE AS $$
    SELECT min(month)::date FROM (
        SELECT to_date(right(c.relname, 6), 'YYYYMM') AS month
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass(parent) AND c.relname ~ '_[0-9]{6}$'
    ) AS months
    WHERE months_key(parent) <> '' AND month + interval '1 month' <= before
$$;
-- +goose StatementEnd

-- Drops the partition of a month that is five years old or older; false when there is none. Nothing makes it drop a younger one.
-- +goose StatementBegin
CREATE FUNCTION months_drop(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = contacts_compliance, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    name text := parent || '_' || to_char(month, 'YYYYMM');
BEGIN
    PERFORM months_key(parent);
    IF date_trunc('month', month::timestamp) + interval '5 years 1 month' > (now() AT TIME ZONE 'UTC') THEN
        RAISE EXCEPTION '% is kept for five years', name USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('contacts_compliance months', 0));
    IF to_regclass(name) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, name);
    EXECUTE format('DROP TABLE %I', name);
    RETURN true;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION months_add(text, date), months_drop(text, date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION months_add(text, date), months_drop(text, date) TO contacts_compliance_app;

-- What is there moves to its months; clocks far off stay in the rest. This month and the next are there from the beginning.
-- +goose StatementBegin
DO $$
DECLARE
    month date;
BEGIN
    FOR month IN
        SELECT DISTINCT date_trunc('month', judged_at AT TIME ZONE 'UTC')::date FROM decisions_unmonthed
        WHERE judged_at BETWEEN now() - interval '10 years' AND now() + interval '3 months'
        UNION SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date
        UNION SELECT (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month')::date
    LOOP
        PERFORM months_add('decisions', month);
    END LOOP;
    PERFORM months_add('consent_records', date_trunc('month', now() AT TIME ZONE 'UTC')::date);
    PERFORM months_add('consent_records', (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month')::date);
END $$;
-- +goose StatementEnd
INSERT INTO decisions SELECT * FROM decisions_unmonthed;
DROP TABLE decisions_unmonthed;
