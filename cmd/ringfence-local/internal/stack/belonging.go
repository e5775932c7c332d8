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

// signature is the file in a cluster by which its home is known again: a hash of the password it was made with.
const signature = "ringfence.home"

// sign marks a cluster that is being made.
func (s *Server) sign(data string) error {
	path := filepath.Join(data, signature)
	if err := os.WriteFile(path, []byte(s.hash()), 0o600); err != nil {
		return fmt.Errorf("sign database: %w", err)
	}
	return s.Account.own(path)
}

func (s *Server) hash() string {
	sum := sha256.Sum256([]byte(s.Password))
	return hex.EncodeToString(sum[:])
}

// Settle looks whether the cluster that is there, if any, is this home's. One that lies outside belongs to a home of the same name that
// was removed: it is moved aside, and told where, since the next Init makes a new one. One inside the home is refused.
func (s *Server) Settle(ctx context.Context, home string) (aside string, err error) {
	signed, err := os.ReadFile(filepath.Join(s.Data, signature))
	if err != nil || string(signed) == s.hash() {
		return "", nil //nolint:nilerr // no cluster, or one without a signature: the password will tell
	}
	if strings.HasPrefix(s.Data, home+string(filepath.Separator)) {
		return "", s.locked()
	}
	if err := s.clear(ctx); err != nil {
		return "", err
	}
	aside = s.Data + ".removed"
	if err := os.RemoveAll(aside); err != nil {
		return "", fmt.Errorf("remove what was set aside before: %w", err)
	}
	if err := os.Rename(s.Data, aside); err != nil {
		return "", fmt.Errorf("set database aside: %w", err)
	}
	return aside, nil
}

// locked is the database whose password is lost.
func (s *Server) locked() error {
	return fmt.Errorf("the database in %s was made with the passwords of another state.json: restore that file, or remove %s to begin anew", s.Data, s.Data)
}
