package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// signatureFile is the name of a file in the cluster's data directory. It identifies the home: its
// content is a hash of the password with which the cluster was created.
const signatureFile = "ringfence.home"

func (s *Server) sign(data string) error {
	path := filepath.Join(data, signatureFile)
	if err := os.WriteFile(path, []byte(s.hash()), 0o600); err != nil {
		return fmt.Errorf("sign database: %w", err)
	}
	return s.Account.chown(path)
}

func (s *Server) hash() string {
	sum := sha256.Sum256([]byte(s.Password))
	return hex.EncodeToString(sum[:])
}

// CheckHome checks that this home created the existing cluster. A foreign cluster inside the home
// is an error. A foreign cluster outside the home belongs to a deleted home of the same name, so it
// is renamed.
func (s *Server) CheckHome(ctx context.Context, home string) (renamedTo string, err error) {
	signed, err := os.ReadFile(filepath.Join(s.Data, signatureFile))
	if err != nil || string(signed) == s.hash() {
		// Without a cluster there is nothing to check. A cluster without a signature is accepted:
		// the first connection shows whether the password is right.
		return "", nil //nolint:nilerr
	}
	if strings.HasPrefix(s.Data, home+string(filepath.Separator)) {
		return "", s.passwordError()
	}
	if err := s.removeLeftovers(ctx); err != nil {
		return "", err
	}
	renamedTo = s.Data + ".removed"
	if err := os.RemoveAll(renamedTo); err != nil {
		return "", fmt.Errorf("remove the database that was moved earlier: %w", err)
	}
	if err := os.Rename(s.Data, renamedTo); err != nil {
		return "", fmt.Errorf("move database: %w", err)
	}
	return renamedTo, nil
}

// passwordError returns the error for a database whose password is lost.
func (s *Server) passwordError() error {
	return fmt.Errorf("the database in %s was created with the passwords of another state.json: restore that file, or "+
		"remove %s to start with an empty database", s.Data, s.Data)
}
