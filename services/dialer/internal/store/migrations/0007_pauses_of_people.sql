-- +goose Up

-- The actor user is a person with a session of the console. Its id is the id of the person. Dialers of
-- earlier versions write the actor operator with the name "person:" and the id.
ALTER TABLE dialing_states DROP CONSTRAINT dialing_states_actor_type_check,
    ADD CHECK (actor_type IN ('operator', 'api_key', 'user'));
