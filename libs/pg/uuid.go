package pg

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// uuidCodec carries uuid.UUID as its 16 bytes. pgx by itself meets the interfaces of database/sql first: each id is printed, refused
// twice by the binary codec and parsed again on its way out, printed and parsed on its way in.
type uuidCodec struct{ pgtype.UUIDCodec }

func registerUUID(types *pgtype.Map) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: id}})
}

// PlanEncode knows uuid.UUID; the rest is pgx's.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan knows *uuid.UUID; the rest is pgx's.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

// Encode appends the bytes.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("encode %T as a UUID", value)
	}
	return append(buf, id[:]...), nil
}

// Scan takes NULL for the nil UUID, as uuid.UUID itself does.
func (uuidPlan) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	switch {
	case !ok:
		return fmt.Errorf("scan a UUID into %T", target)
	case src == nil:
		*id = uuid.Nil
	case len(src) != len(id):
		return fmt.Errorf("scan a UUID of %d bytes", len(src))
	default:
		copy(id[:], src)
	}
	return nil
}
