-- +goose Up

ALTER TABLE sessions
    -- When the person proved the identity, if that was before the sign-in: an OpenID provider can sign a
    -- person in without asking. NULL: at the sign-in.
    ADD COLUMN authenticated_at timestamptz,
    -- The session with the token that replaced the token of this one. A sign-out ends both.
    ADD COLUMN replaced_by uuid;
