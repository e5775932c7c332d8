-- +goose Up
-- SIP trunks, as operators set them up. The password lies sealed; its key is not in the database.
CREATE TABLE trunks (
    trunk_id         uuid PRIMARY KEY,
    version          bigint NOT NULL,
    name             text NOT NULL,
    status           text NOT NULL CHECK (status IN ('active', 'disabled')),
    host             text NOT NULL,
    port             integer NOT NULL,
    transport        text NOT NULL,
    outbound_proxy   text NOT NULL,
    ca_certificates  text NOT NULL,
    username         text NOT NULL,
    password_sealed  bytea,
    register         boolean NOT NULL,
    caller_ids       text[] NOT NULL,
    caller_id_header text NOT NULL,
    number_format    text NOT NULL,
    number_prefix    text NOT NULL,
    codecs           text[] NOT NULL,
    srtp             text NOT NULL,
    session_seconds  integer NOT NULL,
    channels         integer NOT NULL,
    calls_per_second integer NOT NULL,
    priority         integer NOT NULL,
    inbound_sources  text[] NOT NULL
);
CREATE UNIQUE INDEX trunks_name ON trunks (lower(name));
