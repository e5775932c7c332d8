package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

// wrongStates returns the contacts whose DND or consent differs from their last record. The record
// of an import applies to every number of the import's list.
//
// Numbers that a running import has opted out are left out, because their record does not exist
// yet. If months were dropped, states without a record are left out too, because the record may
// have been dropped.
const wrongStates = `
WITH recorded AS (
    SELECT workspace_id, phone_e164, seq, id, kind IN ('opt_out', 'opt_out_removed') AS dnd, after
        FROM consent_records WHERE phone_e164 IS NOT NULL
    UNION ALL
    SELECT r.workspace_id, n.phone_e164, r.seq, r.id, true, r.after
    FROM consent_records r JOIN opt_out_import_numbers n ON n.import_id::text = r.evidence->>'import_id'
    WHERE r.phone_e164 IS NULL AND r.source = 'import'
), last AS (
    SELECT DISTINCT ON (workspace_id, phone_e164, dnd) workspace_id, phone_e164, dnd, seq, id, after
    FROM recorded ORDER BY workspace_id, phone_e164, dnd, seq DESC
), current AS (
    SELECT workspace_id, phone_e164, true AS dnd, id AS contact_id, dnd_status AS state FROM contacts
        WHERE dnd_status <> 'unknown'
    UNION ALL
    SELECT workspace_id, phone_e164, false, id, consent_status FROM contacts WHERE consent_status <> 'unknown'
)
SELECT workspace_id, coalesce(l.seq, 0) AS seq, coalesce(l.id, h.contact_id) AS id, coalesce(l.after,
    '') AS recorded, coalesce(h.state, 'unknown') AS state
FROM last l FULL JOIN current h USING (workspace_id, phone_e164, dnd)
WHERE l.after IS DISTINCT FROM h.state
  AND (l.after IS NOT NULL OR NOT EXISTS (SELECT 1 FROM consent_starts s WHERE s.workspace_id = h.workspace_id))
  AND NOT (dnd AND h.state = 'dnd' AND EXISTS (
       SELECT 1 FROM opt_out_imports i JOIN opt_out_import_numbers n ON n.import_id = i.id
           AND n.phone_e164 = h.phone_e164
       WHERE i.workspace_id = h.workspace_id AND i.status = 'applying'))
ORDER BY workspace_id, seq
LIMIT @limit`

func (w *verifier) states(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, wrongStates, pgx.NamedArgs{"limit": maxBreaks})
	if err != nil {
		return fmt.Errorf("compare contacts with their records: %w", err)
	}
	var workspace, id uuid.UUID
	var seq int64
	var recorded, state string
	_, err = pgx.ForEachRow(rows, []any{&workspace, &seq, &id, &recorded, &state}, func() error {
		why := fmt.Sprintf("is the last record of its contact with the state %s, and the contact has the state %s", recorded,
			state)
		if recorded == "" {
			why = fmt.Sprintf("contact %s has the state %s without a record", id, state)
			id = uuid.Nil
		}
		w.addBreak(consentchain.Break{WorkspaceID: workspace, Seq: seq, ID: id, Why: why})
		return nil
	})
	if err != nil {
		return fmt.Errorf("compare contacts with their records: %w", err)
	}
	return nil
}
