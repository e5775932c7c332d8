// Package consentchain owns what makes the consent records provable: how a row becomes bytes, how each row's MAC covers the row before it,
// and how a chain, its head and the log of heads outside the database are held against each other. The key is not in the database, so
// whoever can write there can break a chain and cannot mend it. It reads and writes nothing.
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

// Row is one consent record with its place in the workspace's chain.
type Row struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	// Seq counts the workspace's rows from 1.
	Seq int64 `db:"seq"`
	// RecordedAt is the database's clock, never before the row before.
	RecordedAt time.Time `db:"recorded_at"`
	ID         uuid.UUID `db:"id"`
	// Number and ContactID are nil where a row speaks of many numbers: an import, the start of a chain.
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
	// KeyID names the key of MAC.
	KeyID string `db:"key_id"`
	MAC   []byte `db:"mac"`
}

// Link is a place in a chain: how many rows there are up to it, and the MAC of the last of them. The zero Link is where every chain begins.
type Link struct {
	Seq int64
	MAC []byte
}

// Sign puts the row behind the link under the first key: it sets Seq, KeyID and MAC, and answers the new link.
func (r *Row) Sign(keys *Keys, behind Link) Link {
	r.Seq, r.KeyID = behind.Seq+1, keys.first
	r.MAC = keys.sum(keys.first, r.bytes(behind))
	return Link{Seq: r.Seq, MAC: r.MAC}
}

// follows says whether the row is what was signed behind the link.
func (r *Row) follows(keys *Keys, behind Link) error {
	return keys.check(r.KeyID, r.bytes(behind), r.MAC)
}

// bytes is everything that a row's MAC covers, the row before it included. Each field says its length, so that no two rows are the
// same bytes; times are microseconds, as the database keeps them.
func (r *Row) bytes(behind Link) []byte {
	var w writer
	w.text("consent record 1")
	w.raw(behind.MAC)
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

// writer puts fields one behind the other, each behind its length; an absent one has the length -1.
type writer struct{ out []byte }

func (w *writer) raw(field []byte) {
	if field == nil {
		w.out = binary.BigEndian.AppendUint32(w.out, ^uint32(0))
		return
	}
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(len(field)))
	w.out = append(w.out, field...)
}

func (w *writer) text(field string)  { w.raw([]byte(field)) }
func (w *writer) number(field int64) { w.raw(binary.BigEndian.AppendUint64(nil, uint64(field))) }

func (w *writer) optional(field *string) {
	if field == nil {
		w.raw(nil)
		return
	}
	w.raw(append([]byte{}, *field...))
}

func (w *writer) id(field *uuid.UUID) {
	if field == nil {
		w.raw(nil)
		return
	}
	w.raw(field[:])
}

// FromImport is the source of a row that speaks of the numbers of a list.
const FromImport = "import"

// Imported is the evidence of such a row: the digests of the file as it came, and of its numbers (List).
type Imported struct {
	ImportID   uuid.UUID `json:"import_id"`
	FileSHA256 string    `json:"file_sha256"`
	ListSHA256 string    `json:"list_sha256"`
	Numbers    int64     `json:"numbers"`
	Lines      int64     `json:"lines"`
	Bad        int64     `json:"bad"`
}

// List sums up numbers, each once and in their order, each with a line's end.
type List struct{ sum hash.Hash }

// NewList is the list without numbers.
func NewList() *List { return &List{sum: sha256.New()} }

// Add takes the next number.
func (l *List) Add(number string) {
	l.sum.Write([]byte(number))
	l.sum.Write([]byte{'\n'})
}

// Hex is the SHA-256 so far.
func (l *List) Hex() string { return hex.EncodeToString(l.sum.Sum(nil)) }
