package main

import "testing"

func TestLongCalls_AreCountedWhileKafkaIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	const insert = `INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner, counted_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), true, '', '', gen_random_uuid(), now() - interval '6 minutes')`
	if _, err := r.pool.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	r.dialer("KAFKA_BROKERS=" + freeAddr(t))
	await(t, "counted_at of the leg is moved forward", func() bool {
		var moved bool
		const read = `SELECT counted_at > now() - interval '2 minutes' FROM sip_legs`
		if err := r.pool.QueryRow(t.Context(), read).Scan(&moved); err != nil {
			t.Fatal(err)
		}
		return moved
	})
}
