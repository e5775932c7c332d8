package consentchain

import "github.com/google/uuid"

// Subject is the HMAC of a workspace and a number. It identifies a number without storing the
// number: without the key, the HMAC of a number cannot be computed.
type Subject struct {
	KeyID string
	Sum   []byte
}

const subjectPurpose = "erasure subject 1"

// Subject returns the HMAC of a number under the first key.
func (k *Keys) Subject(workspace uuid.UUID, number string) Subject {
	return k.subject(k.first, workspace, number)
}

// Subjects returns the HMACs of a number under every key. They also match entries that were stored
// under earlier keys.
func (k *Keys) Subjects(workspace uuid.UUID, number string) (sums [][]byte) {
	for id := range k.keys {
		sums = append(sums, k.subject(id, workspace, number).Sum)
	}
	return sums
}

func (k *Keys) subject(key string, workspace uuid.UUID, number string) Subject {
	var w fieldWriter
	w.text(subjectPurpose)
	w.raw(workspace[:])
	w.text(number)
	return Subject{KeyID: key, Sum: k.sum(key, w.out)}
}
