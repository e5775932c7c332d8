-- Creates one schema and two roles for each service: <schema>_owner migrates and owns the tables, <schema>_app runs the
-- service. Run it once in a new database, as a superuser or as the owner of the database with CREATEROLE. The passwords are
-- examples. The settings of the _app roles are those that a service sets for its connections; behind a pooler in transaction
-- mode the service cannot set them (docs/runbooks/postgres-connections.md).
\set ON_ERROR_STOP on
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE TEMPORARY ON DATABASE ringfence FROM PUBLIC;
SELECT format($$
    CREATE ROLE %1$I LOGIN PASSWORD 'example';
    CREATE ROLE %2$I LOGIN PASSWORD 'example';
    GRANT %1$I TO CURRENT_USER;
    CREATE SCHEMA %3$I AUTHORIZATION %1$I;
    REVOKE ALL ON SCHEMA %3$I FROM PUBLIC;
    GRANT USAGE ON SCHEMA %3$I TO %2$I;
    ALTER DEFAULT PRIVILEGES FOR ROLE %1$I IN SCHEMA %3$I GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %2$I;
    ALTER DEFAULT PRIVILEGES FOR ROLE %1$I IN SCHEMA %3$I GRANT USAGE ON SEQUENCES TO %2$I;
    REVOKE %1$I FROM CURRENT_USER;
    ALTER ROLE %2$I SET search_path = %3$I;
    ALTER ROLE %2$I SET jit = off;
    ALTER ROLE %2$I SET statement_timeout = '15s';
    ALTER ROLE %2$I SET idle_in_transaction_session_timeout = '5s';
    ALTER ROLE %2$I SET tcp_user_timeout = '10s';
$$, name || '_owner', name || '_app', name)
FROM unnest(ARRAY['gateway', 'calls', 'contacts_compliance', 'dialer', 'billing_wallet', 'webhook_dispatcher']) AS name
\gexec
