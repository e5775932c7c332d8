package consentchain

import "github.com/google/uuid"

// Subject is a number of a workspace as a register may keep it: without the key nobody can tell whose it is, nor try numbers out.
type Subject struct {
	KeyID string
	Sum   []byte
}

const subjectOf = "erasure subject 1"

// Subject hides a number under the first key.
func (k *Keys) Subject(workspace uuid.UUID, number string) Subject {
	return k.subject(k.first, workspace, number)
}

// Subjects hides a number under every key, to find what was hidden under an earlier one.
func (k *Keys) Subjects(workspace uuid.UUID, number string) (sums [][]byte) {
	for id := range k.keys {
		sums = append(sums, k.subject(id, workspace, number).Sum)
	}
	return sums
}

func (k *Keys) subject(key string, workspace uuid.UUID, number string) Subject {
	var w writer
	w.text(subjectOf)
	w.raw(workspace[:])
	w.text(number)
	return Subject{KeyID: key, Sum: k.sum(key, w.out)}
}
