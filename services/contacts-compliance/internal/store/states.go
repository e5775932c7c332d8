package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

// strayStates are those of contacts that are not what their last record says, on each axis; an import's record speaks of its list. Whoever an import that runs
// has opted out has no record yet; where a month was dropped, or older records are in no chain yet, a state may have lost its record or not got it.
const strayStates = `
WITH said AS (
    SELECT workspace_id, phone_e164, seq, id, kind IN ('opt_out', 'opt_out_removed') AS dnd, after FROM consent_records WHERE phone_e164 IS NOT NULL
    UNION ALL
    SELECT r.workspace_id, n.phone_e164, r.seq, r.id, true, r.after
    FROM consent_records r JOIN opt_out_import_numbers n ON n.import_id::text = r.evidence->>'import_id'
    WHERE r.phone_e164 IS NULL AND r.source = 'import'
), last AS (
    SELECT DISTINCT ON (workspace_id, phone_e164, dnd) workspace_id, phone_e164, dnd, seq, id, after
    FROM said ORDER BY workspace_id, phone_e164, dnd, seq DESC
), held AS (
    SELECT workspace_id, phone_e164, true AS dnd, id AS contact_id, dnd_status AS state FROM contacts WHERE dnd_status <> 'unknown'
    UNION ALL
    SELECT workspace_id, phone_e164, false, id, consent_status FROM contacts WHERE consent_status <> 'unknown'
)
SELECT workspace_id, coalesce(l.seq, 0) AS seq, coalesce(l.id, h.contact_id) AS id, coalesce(l.after, '') AS said, coalesce(h.state, 'unknown') AS state
FROM last l FULL JOIN held h USING (workspace_id, phone_e164, dnd)
WHERE l.after IS DISTINCT FROM h.state
  AND (l.after IS NOT NULL OR NOT EXISTS (SELECT 1 FROM consent_starts s WHERE s.workspace_id = h.workspace_id))
  AND NOT (dnd AND h.state = 'dnd' AND EXISTS (
       SELECT 1 FROM opt_out_imports i JOIN opt_out_import_numbers n ON n.import_id = i.id AND n.phone_e164 = h.phone_e164
       WHERE i.workspace_id = h.workspace_id AND i.status = 'applying'))
ORDER BY workspace_id, seq
LIMIT @most`

// states holds what the gates go by against what the records say.
func (w *walk) states(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, strayStates, pgx.NamedArgs{"most": mostBreaks})
	if err != nil {
		return fmt.Errorf("compare contacts with their records: %w", err)
	}
	var workspace, id uuid.UUID
	var seq int64
	var said, state string
	_, err = pgx.ForEachRow(rows, []any{&workspace, &seq, &id, &said, &state}, func() error {
		why := fmt.Sprintf("is the last to speak of its contact and says %s, and the contact is %s", said, state)
		if said == "" {
			why = fmt.Sprintf("contact %s is %s, and no record says so", id, state)
			id = uuid.Nil
		}
		w.broke(consentchain.Break{WorkspaceID: workspace, Seq: seq, ID: id, Why: why})
		return nil
	})
	if err != nil {
		return fmt.Errorf("compare contacts with their records: %w", err)
	}
	return nil
}
