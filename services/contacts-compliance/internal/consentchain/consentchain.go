// Package consentchain signs and verifies the chain of consent records. Each row has a message
// authentication code (MAC), which covers the row and the MAC of the row before it. The keys are
// not in the database. So a person who can write to the database cannot sign a changed chain. The
// package does no I/O.
package consentchain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"time"

	"github.com/google/uuid"
)

// Row is one consent record with its position in the workspace's chain.
type Row struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	// Seq numbers the workspace's rows, starting at 1.
	Seq int64 `db:"seq"`
	// RecordedAt is the time of the database server. It never decreases within a chain.
	RecordedAt time.Time `db:"recorded_at"`
	ID         uuid.UUID `db:"id"`
	// Number and ContactID are nil in the record of an import, which covers many numbers.
	Number     *string         `db:"phone_e164"`
	ContactID  *uuid.UUID      `db:"contact_id"`
	Kind       string          `db:"kind"`
	Source     string          `db:"source"`
	Actor      string          `db:"actor"`
	Reason     *string         `db:"reason"`
	Evidence   json.RawMessage `db:"evidence"`
	CallID     *uuid.UUID      `db:"call_id"`
	Before     *string         `db:"before"`
	After      *string         `db:"after"`
	OccurredAt time.Time       `db:"occurred_at"`
	// KeyID is the id of the key that computed MAC.
	KeyID string `db:"key_id"`
	MAC   []byte `db:"mac"`
}

// Link identifies a row in a chain by its number and its MAC. A zero Link is the position before
// the first row.
type Link struct {
	Seq int64
	MAC []byte
}

// Sign makes the row the successor of prev: it sets Seq, KeyID and MAC, using the first key. It
// returns the row's link.
func (r *Row) Sign(keys *Keys, prev Link) Link {
	r.Seq, r.KeyID = prev.Seq+1, keys.first
	r.MAC = keys.sum(keys.first, r.macInput(prev))
	return Link{Seq: r.Seq, MAC: r.MAC}
}

// verifyAfter returns an error unless the MAC of the row is valid and the row directly follows
// prev.
func (r *Row) verifyAfter(keys *Keys, prev Link) error {
	return keys.check(r.KeyID, r.macInput(prev), r.MAC)
}

// macInput returns the input of the MAC, which includes the MAC of the previous row. Each field has
// a length prefix, so two different rows have different inputs. Times are in microseconds, as in
// the database.
func (r *Row) macInput(prev Link) []byte {
	var w fieldWriter
	w.text("consent record 1")
	w.raw(prev.MAC)
	w.raw(r.WorkspaceID[:])
	w.number(r.Seq)
	w.number(r.RecordedAt.UnixMicro())
	w.raw(r.ID[:])
	w.optional(r.Number)
	w.id(r.ContactID)
	w.text(r.Kind)
	w.text(r.Source)
	w.text(r.Actor)
	w.optional(r.Reason)
	w.raw(r.Evidence)
	w.id(r.CallID)
	w.optional(r.Before)
	w.optional(r.After)
	w.number(r.OccurredAt.UnixMicro())
	w.text(r.KeyID)
	return w.out
}

// fieldWriter appends fields with a length prefix. The length of an absent field is -1.
type fieldWriter struct{ out []byte }

func (w *fieldWriter) raw(field []byte) {
	if field == nil {
		w.out = binary.BigEndian.AppendUint32(w.out, ^uint32(0))
		return
	}
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(len(field)))
	w.out = append(w.out, field...)
}

func (w *fieldWriter) text(field string)  { w.raw([]byte(field)) }
func (w *fieldWriter) number(field int64) { w.raw(binary.BigEndian.AppendUint64(nil, uint64(field))) }

func (w *fieldWriter) optional(field *string) {
	if field == nil {
		w.raw(nil)
		return
	}
	w.raw(append([]byte{}, *field...))
}

func (w *fieldWriter) id(field *uuid.UUID) {
	if field == nil {
		w.raw(nil)
		return
	}
	w.raw(field[:])
}

// SourceImport is the source of a record that covers the numbers of an imported list.
const SourceImport = "import"

// ImportEvidence is the evidence of the record of an import: the digests of the received file and
// of the numbers (ListHash).
type ImportEvidence struct {
	ImportID   uuid.UUID `json:"import_id"`
	FileSHA256 string    `json:"file_sha256"`
	ListSHA256 string    `json:"list_sha256"`
	Numbers    int64     `json:"numbers"`
	Lines      int64     `json:"lines"`
	Bad        int64     `json:"bad"`
}

// ListHash is the SHA-256 of the sorted, distinct numbers of an import, each followed by a line
// feed.
type ListHash struct{ sum hash.Hash }

// NewListHash returns the digest of an empty list.
func NewListHash() *ListHash { return &ListHash{sum: sha256.New()} }

// Add adds the next number. The numbers must be distinct and in ascending order.
func (l *ListHash) Add(number string) {
	l.sum.Write([]byte(number))
	l.sum.Write([]byte{'\n'})
}

// Hex returns the digest of the numbers so far.
func (l *ListHash) Hex() string { return hex.EncodeToString(l.sum.Sum(nil)) }
