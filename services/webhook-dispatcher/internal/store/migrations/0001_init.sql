-- +goose Up

-- A copy of the workspaces in the topic workspaces.v1: the newest version that was read of each.
CREATE TABLE workspaces (
    id               uuid PRIMARY KEY,
    version          bigint NOT NULL,
    suspended        boolean NOT NULL,
    -- Whether the workspace has the webhooks feature.
    webhooks_enabled boolean NOT NULL DEFAULT true,
    -- True while the queued deliveries of the workspace are not sent.
    deliveries_held  boolean NOT NULL GENERATED ALWAYS AS (suspended OR NOT webhooks_enabled) STORED,
    -- Retention of the workspace's history in days; null if the service's own setting applies.
    keep_days        int,
    updated_at       timestamptz NOT NULL DEFAULT now()
);
-- A poll reads the workspaces that changed since the previous poll.
CREATE INDEX workspaces_updated ON workspaces (updated_at);

-- The settings of a subscription. Every ingest locks the row FOR SHARE, so counters that change
-- with each attempt are in subscription_health.
CREATE TABLE subscriptions (
    id            uuid PRIMARY KEY,
    workspace_id  uuid NOT NULL,
    name          text NOT NULL,
    url           text NOT NULL CHECK (url LIKE 'https://%'),
    description   text NOT NULL DEFAULT '',
    events        text[] NOT NULL CHECK (cardinality(events) > 0),
    status        text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'failed')),
    secret_sealed bytea NOT NULL,
    secret_last4  text NOT NULL,
    failed_at     timestamptz,
    failed_reason text,
    -- When the subscription last became active again. Each replica sends slowly after that time.
    resumed_at    timestamptz,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- The time of the DELETE request. The API no longer returns the row, and a job deletes its
    -- queue and its history.
    deleted_at    timestamptz,
    CHECK ((status = 'failed') = (failed_at IS NOT NULL)),
    CHECK ((failed_at IS NULL) = (failed_reason IS NULL))
);
CREATE INDEX subscriptions_workspace ON subscriptions (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_deleted ON subscriptions (deleted_at) WHERE deleted_at IS NOT NULL;
-- At its start a replica lists the due subscriptions, and visits only the active ones.
CREATE INDEX subscriptions_active ON subscriptions (id) WHERE status = 'active' AND deleted_at IS NULL;
-- A poll reads the subscriptions that were resumed since the previous poll.
CREATE INDEX subscriptions_resumed ON subscriptions (resumed_at) WHERE resumed_at IS NOT NULL;

-- The results of the attempts since the last success. failures, exhausted and failing_since count
-- deliveries of call events only; consecutive_failures counts test deliveries too.
CREATE TABLE subscription_health (
    subscription_id      uuid PRIMARY KEY REFERENCES subscriptions ON DELETE CASCADE,
    consecutive_failures int NOT NULL DEFAULT 0 CHECK (consecutive_failures >= 0),
    failures             int NOT NULL DEFAULT 0 CHECK (failures >= 0),
    exhausted            int NOT NULL DEFAULT 0 CHECK (exhausted >= 0),
    failing_since        timestamptz,
    warned_at            timestamptz,
    last_success_at      timestamptz,
    last_failure_at      timestamptz,
    last_error           text
) WITH (fillfactor = 70);

-- The tables events, deliveries and attempts are the history. Each has one partition for each day
-- (UTC), <table>_<YYYYMMDD>. Rows of other days are in <table>_default: rows with a wrong clock,
-- and rows that were still needed when their day was dropped. The running role accesses a partition
-- through its table only.

-- The body of an event, stored once for all subscriptions. The partition depends on the event's own
-- time: a record that Kafka delivers again after midnight conflicts with the same row.
CREATE TABLE events (
    id           uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    workspace_id uuid NOT NULL,
    call_id      uuid,
    type         text NOT NULL,
    sequence     int NOT NULL,
    body         bytea NOT NULL,
    -- When the data of the called person was erased from the body; null if it was not. The body is
    -- empty when no delivery waits for it any more.
    erased_at    timestamptz,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE events_default PARTITION OF events DEFAULT;
-- Erased bodies that are not empty yet, because a delivery waited for them at the erasure.
CREATE INDEX events_erased ON events (id) WHERE erased_at IS NOT NULL AND body <> '';
REVOKE UPDATE, TRUNCATE ON events FROM webhook_dispatcher_app;
REVOKE ALL ON events_default FROM webhook_dispatcher_app;

-- One event for one subscription. The API status "held" is not stored: it is a queued delivery
-- whose subscription or workspace currently receives nothing.
CREATE TABLE deliveries (
    id              uuid NOT NULL,
    created_at      timestamptz NOT NULL,
    workspace_id    uuid NOT NULL,
    subscription_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    call_id         uuid,
    sequence        int NOT NULL,
    status          text NOT NULL CHECK (status IN ('queued', 'delivered', 'failed', 'skipped')),
    -- Attempts since the last replay.
    attempts        int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- How often an operator queued the delivery again (replay).
    replays         int NOT NULL DEFAULT 0 CHECK (replays >= 0),
    last_code       int,
    last_error      text,
    traceparent     text NOT NULL DEFAULT '',
    queued_at       timestamptz NOT NULL DEFAULT now(),
    done_at         timestamptz,
    -- When the body of the event was erased. The bytes of later attempts differ from those before.
    erased_at       timestamptz,
    PRIMARY KEY (id, created_at),
    CHECK ((status = 'queued') = (done_at IS NULL))
) PARTITION BY RANGE (created_at);
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT;
CREATE INDEX deliveries_subscription ON deliveries (subscription_id, created_at DESC, id DESC);
CREATE INDEX deliveries_call ON deliveries (call_id, subscription_id) WHERE call_id IS NOT NULL;
-- Deliveries that did not arrive: for a page of the list, and for a replay in the order of their
-- end.
CREATE INDEX deliveries_missed ON deliveries (subscription_id, status, created_at DESC, id DESC) WHERE status IN ('failed', 'skipped');
CREATE INDEX deliveries_ended ON deliveries (subscription_id, status, done_at, id) WHERE status IN ('failed', 'skipped');
REVOKE ALL ON deliveries_default FROM webhook_dispatcher_app;

CREATE TABLE attempts (
    delivery_id uuid NOT NULL,
    -- The number of the attempt, from 1, within its replay.
    no          int NOT NULL CHECK (no >= 1),
    replay      int NOT NULL DEFAULT 0 CHECK (replay >= 0),
    at          timestamptz NOT NULL,
    -- Duration in milliseconds.
    ms          int NOT NULL,
    -- The HTTP status; null if there was no response.
    code        int,
    error       text,
    -- The beginning of the response body.
    excerpt     text,
    PRIMARY KEY (delivery_id, no, at)
) PARTITION BY RANGE (at);
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;
REVOKE UPDATE, TRUNCATE ON attempts FROM webhook_dispatcher_app;
REVOKE ALL ON attempts_default FROM webhook_dispatcher_app;

-- The deliveries with status queued, and nothing else, so that the table stays small. It does not
-- copy the status of the subscription (docs/adr/0005-keep-the-status-out-of-the-webhook-queue.md).
CREATE TABLE delivery_queue (
    delivery_id     uuid PRIMARY KEY,
    created_at      timestamptz NOT NULL,
    workspace_id    uuid NOT NULL,
    subscription_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    call_id         uuid,
    sequence        int NOT NULL,
    -- A claim counts the attempt before it is sent.
    attempt         int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- The value of deliveries.replays. The result of an attempt before the replay is ignored.
    replay          int NOT NULL DEFAULT 0 CHECK (replay >= 0),
    -- True after an attempt has failed. First attempts are claimed before retries, and a retry does
    -- not delay the next event of its call.
    is_retry        boolean NOT NULL DEFAULT false,
    -- When the next attempt may start. A claim moves it forward by the lease.
    due_at          timestamptz NOT NULL DEFAULT now(),
    traceparent     text NOT NULL DEFAULT '',
    queued_at       timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- A claim reads the due deliveries of one subscription.
CREATE INDEX delivery_queue_subscription ON delivery_queue (subscription_id, is_retry, due_at, delivery_id);
-- A poll reads the deliveries that became due since the previous poll.
CREATE INDEX delivery_queue_due ON delivery_queue (due_at, delivery_id);
-- A claim keeps the order of one call's events to one subscription.
CREATE INDEX delivery_queue_call ON delivery_queue (subscription_id, call_id, sequence) WHERE NOT is_retry;
-- Dropping a day finds the open deliveries of that day while it blocks all access to the history.
CREATE INDEX delivery_queue_created ON delivery_queue (created_at);

-- Partitions. Only the owner of the schema may create and drop tables. The running role calls
-- add_day, drop_day and prune_default, which accept the three tables of the history only. An
-- advisory lock serializes the replicas. lock_timeout limits how long other statements wait behind
-- an exclusive lock that is not granted yet.

-- Returns the partition column of a table of the history. Raises an error for any other table.
-- +goose StatementBegin
CREATE FUNCTION partition_column(parent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE parent
        WHEN 'events', 'deliveries' THEN RETURN 'created_at';
        WHEN 'attempts' THEN RETURN 'at';
        ELSE RAISE EXCEPTION '% is not a table of the history', parent USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
-- +goose StatementEnd

-- Returns the name of the partition of a day.
-- +goose StatementBegin
CREATE FUNCTION partition_name(parent text, day date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT parent || '_' || to_char(day, 'YYYYMMDD')
$$;
-- +goose StatementEnd

-- Returns the SQL condition that row o is needed whatever its age, because its delivery is queued.
-- Attempts are never needed.
-- +goose StatementBegin
CREATE FUNCTION open_condition(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        WHEN 'events' THEN 'EXISTS (SELECT FROM delivery_queue q WHERE q.created_at = o.created_at AND q.event_id = o.id)'
        WHEN 'deliveries' THEN 'EXISTS (SELECT FROM delivery_queue q WHERE q.delivery_id = o.id AND q.created_at = o.created_at)'
        ELSE 'false' END
$$;
-- +goose StatementEnd

-- Returns the SQL query for the ids of the needed rows between the times $1 and $2; null for attempts.
-- +goose StatementBegin
CREATE FUNCTION open_ids(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        WHEN 'events' THEN 'SELECT q.event_id FROM delivery_queue q WHERE q.created_at >= $1 AND q.created_at < $2'
        WHEN 'deliveries' THEN 'SELECT q.delivery_id FROM delivery_queue q WHERE q.created_at >= $1 AND q.created_at < $2'
        END
$$;
-- +goose StatementEnd

-- Replaces the default partition by an empty one, creates the partitions of the given days, and
-- inserts the old rows again, except those that are older than keep and not needed.
--
-- The functions that run under an ACCESS EXCLUSIVE lock disable sequential scans: their plans must
-- use delivery_queue_created.
-- +goose StatementBegin
CREATE FUNCTION renew_default(parent text, keep timestamptz, days date[]) RETURNS void LANGUAGE plpgsql
SET search_path = webhook_dispatcher, pg_temp SET enable_seqscan = off AS $$
DECLARE
    current text := parent || '_default';
    old     text := parent || '_old';
    day     date;
BEGIN
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, current);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', current, old);
    EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT', current, parent);
    EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', current);
    FOREACH day IN ARRAY days LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition_name(parent, day), parent,
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', partition_name(parent, day));
    END LOOP;
    EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.%I >= $1 OR %s', parent, old, partition_column(parent), open_condition(parent))
    USING keep;
    EXECUTE format('DROP TABLE %I', old);
END $$;
-- +goose StatementEnd

-- Creates the partition of a day; false if it exists. Rows of that day move to it from the default
-- partition. If there are none, statements on other days do not wait.
-- +goose StatementBegin
CREATE FUNCTION add_day(parent text, day date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    name text := partition_name(parent, day);
BEGIN
    PERFORM partition_column(parent); -- raises an error for other tables
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
        EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', name);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name,
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    EXCEPTION WHEN check_violation THEN -- the default partition has rows of that day
        PERFORM renew_default(parent, '-infinity', ARRAY[day]);
    END;
    RETURN true;
END $$;
-- +goose StatementEnd

-- Drops the partition of the oldest day if that day is before the given one, and returns the day;
-- null if no partition was dropped. Rows that are needed move to the default partition.
-- +goose StatementBegin
CREATE FUNCTION drop_day(parent text, before date) RETURNS date LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    day date;
BEGIN
    PERFORM partition_column(parent); -- raises an error for other tables
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(parent) AND c.relname ~ '_[0-9]{8}$';
    IF day IS NULL OR day >= before THEN
        RETURN NULL;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, partition_name(parent, day));
    IF open_ids(parent) IS NOT NULL THEN
        EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.id = ANY (ARRAY(%s)) AND %s', parent,
                       partition_name(parent, day), open_ids(parent), open_condition(parent))
        USING day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC';
    END IF;
    EXECUTE format('DROP TABLE %I', partition_name(parent, day));
    RETURN day;
END $$;
-- +goose StatementEnd

-- Removes rows before the given day from the default partition, except those that are needed. It
-- returns false, and takes no exclusive lock, if there are none.
-- +goose StatementBegin
CREATE FUNCTION prune_default(parent text, before date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s' SET enable_seqscan = off AS $$
DECLARE
    key     text := partition_column(parent);
    since   timestamptz := before::timestamp AT TIME ZONE 'UTC';
    expired boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    EXECUTE format('SELECT EXISTS (SELECT FROM %I o WHERE o.%I < $1 AND NOT %s)', parent || '_default', key, open_condition(parent))
    INTO expired USING since;
    IF expired THEN
        PERFORM renew_default(parent, since, '{}');
    END IF;
    RETURN expired;
END $$;
-- +goose StatementEnd

-- Erasure (docs/reference/api/operator-api.md#erasure). The running role may not update events and
-- attempts. It calls three functions, erase_body, erase_excerpts and empty_bodies. They remove data
-- and cannot write any.

-- Returns an event body without some members of its data object: those in removed are deleted, and
-- those in nulled become null if they exist. A body that has none of them is returned unchanged. A
-- body that cannot be read becomes empty.
-- +goose StatementBegin
CREATE FUNCTION strip_body(body bytea, removed text[], nulled text[]) RETURNS bytea LANGUAGE plpgsql IMMUTABLE
SET search_path = webhook_dispatcher, pg_temp AS $$
DECLARE
    envelope jsonb;
    data     jsonb;
    name     text;
BEGIN
    envelope := convert_from(body, 'UTF8')::jsonb;
    IF jsonb_typeof(envelope) IS DISTINCT FROM 'object' OR jsonb_typeof(envelope -> 'data') IS DISTINCT FROM 'object' THEN
        RETURN '';
    END IF;
    data := (envelope -> 'data') - removed;
    FOREACH name IN ARRAY nulled LOOP
        IF data ? name THEN
            data := jsonb_set(data, ARRAY[name], 'null');
        END IF;
    END LOOP;
    IF data = envelope -> 'data' THEN
        RETURN body;
    END IF;
    RETURN convert_to(jsonb_set(envelope, '{data}', data)::text, 'UTF8');
EXCEPTION WHEN data_exception THEN -- not UTF-8, not JSON, or JSON that jsonb cannot store
    RETURN '';
END $$;
-- +goose StatementEnd

-- Erases a body. If keep is true, a delivery still waits for the body, and only the given members
-- are removed; otherwise the body becomes empty.
-- +goose StatementBegin
CREATE FUNCTION erase_body(event uuid, created timestamptz, keep boolean, removed text[], nulled text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = webhook_dispatcher, pg_temp AS $$
    UPDATE events SET body = CASE WHEN keep THEN strip_body(body, removed, nulled) ELSE '' END,
        erased_at = coalesce(erased_at, now())
    WHERE id = event AND created_at = created
$$;
-- +goose StatementEnd

-- Erases the excerpts of responses: an endpoint may have returned the data that it received.
-- +goose StatementBegin
CREATE FUNCTION erase_excerpts(deliveries uuid[]) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp AS $$
    UPDATE attempts SET excerpt = NULL WHERE delivery_id = ANY (deliveries) AND excerpt IS NOT NULL
$$;
-- +goose StatementEnd

-- Empties at most max_bodies erased bodies for which no delivery waits, and returns their number.
-- +goose StatementBegin
CREATE FUNCTION empty_bodies(max_bodies integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp AS $$
    WITH over AS (
        SELECT e.id, e.created_at FROM events e
        WHERE e.erased_at IS NOT NULL AND e.body <> '' AND NOT EXISTS (
            SELECT FROM deliveries d JOIN delivery_queue q ON q.delivery_id = d.id
            WHERE d.call_id = e.call_id AND d.event_id = e.id)
        LIMIT max_bodies
    ), emptied AS (
        UPDATE events e SET body = '' FROM over WHERE e.id = over.id AND e.created_at = over.created_at RETURNING 1
    )
    SELECT count(*) FROM emptied
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION partition_column(text), partition_name(text, date), open_condition(text), open_ids(text),
    renew_default(text, timestamptz, date[]), add_day(text, date), drop_day(text, date), prune_default(text, date),
    strip_body(bytea, text[], text[]), erase_body(uuid, timestamptz, boolean, text[], text[]),
    erase_excerpts(uuid[]), empty_bodies(integer)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION add_day(text, date), drop_day(text, date), prune_default(text, date),
    erase_body(uuid, timestamptz, boolean, text[], text[]), erase_excerpts(uuid[]), empty_bodies(integer)
TO webhook_dispatcher_app;
