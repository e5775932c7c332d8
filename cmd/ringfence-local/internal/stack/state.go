// The state that the local stack keeps between two runs: ports, passwords, keys and the demo
// workspace.

package stack

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State is the content of state.json.
type State struct {
	// Layout is 0 in a file that was written before the first release. This version cannot read the
	// database of such a folder.
	Layout int `json:"layout"`
	// Ports contains the ports by name, for example "postgres", "kafka", "calls", "calls private
	// 1".
	Ports map[string]int `json:"ports"`
	// PostgresPassword is the superuser's password. OwnerPasswords and AppPasswords contain the
	// passwords of the roles by schema.
	PostgresPassword string            `json:"postgres_password"`
	OwnerPasswords   map[string]string `json:"owner_passwords"`
	AppPasswords     map[string]string `json:"app_passwords"`
	// SigningKeys contains the Ed25519 seed of each service in base64.
	SigningKeys map[string]string `json:"signing_keys"`
	Pepper      string            `json:"api_key_pepper"`
	SealingKey  string            `json:"sealing_key"`
	ConsentKey  string            `json:"consent_key"`
	LinkKey     string            `json:"link_key"`
	AdminToken  string            `json:"admin_token"`
	Demo        Demo              `json:"demo"`

	path string
}

// Demo contains the parts of the demo workspace that exist.
type Demo struct {
	WorkspaceID string `json:"workspace_id,omitempty"`
	AgentID     string `json:"agent_id,omitempty"`
	WriteKey    string `json:"write_key,omitempty"`
	ReadKey     string `json:"read_key,omitempty"`
}

// currentLayout is the value of State.Layout that this version reads and writes.
const currentLayout = 2

// Load reads the state from the folder, or returns a new state. If the file is damaged, Load reads
// the copy that the previous save left.
func Load(dir string) (*State, error) {
	path := filepath.Join(dir, "state.json")
	s, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		var older error
		if s, older = read(path + ".old"); older == nil {
			err = nil
		} else if errors.Is(err, fs.ErrNotExist) && errors.Is(older, fs.ErrNotExist) {
			s, err = &State{Layout: currentLayout}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if s.Layout < currentLayout {
		return nil, fmt.Errorf("%[1]s has data of a version before the first release, which this version cannot read. "+
			"To keep it, set RINGFENCE_HOME to another folder. To start without it, run rm -r %[1]s", dir)
	}
	s.path = path
	s.fill()
	return s, nil
}

func read(path string) (*State, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s belongs to another user: run as that user, or set RINGFENCE_HOME to a directory of your own: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w); its passwords open the database, so restore it, or remove %s to start "+
			"with an empty stack", path, err, filepath.Dir(path))
	}
	return &s, nil
}

// Save writes the state. After a kill the file has either the new or the previous content.
func (s *State) Save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("render state: %w", err)
	}
	if err := WriteFile(s.path, data, 0o600); err != nil {
		return err
	}
	return WriteFile(s.path+".old", data, 0o600)
}

// fill adds missing values and changes no existing one.
func (s *State) fill() {
	if s.Ports == nil {
		s.Ports = map[string]int{}
	}
	for _, m := range []*map[string]string{&s.OwnerPasswords, &s.AppPasswords, &s.SigningKeys} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	for secret, fresh := range map[*string]func() string{
		&s.PostgresPassword: password,
		&s.Pepper:           key,
		&s.SealingKey:       key,
		&s.ConsentKey:       key,
		&s.LinkKey:          key,
		&s.AdminToken:       func() string { return "rfadm_" + password() },
	} {
		if *secret == "" {
			*secret = fresh()
		}
	}
}

// Schema returns the passwords of a schema's roles and creates them if they do not exist.
func (s *State) Schema(name string) (owner, app string) {
	if s.OwnerPasswords[name] == "" {
		s.OwnerPasswords[name] = password()
	}
	if s.AppPasswords[name] == "" {
		s.AppPasswords[name] = password()
	}
	return s.OwnerPasswords[name], s.AppPasswords[name]
}

// SigningKey returns the Ed25519 seed and the public key of the service in base64. The first call
// creates them.
func (s *State) SigningKey(service string) (seed, public string, err error) {
	if s.SigningKeys[service] == "" {
		s.SigningKeys[service] = key()
	}
	raw, err := base64.StdEncoding.DecodeString(s.SigningKeys[service])
	if err != nil || len(raw) != ed25519.SeedSize {
		return "", "", fmt.Errorf("the signing key of %s in %s is damaged; remove that entry", service, s.path)
	}
	pub, _ := ed25519.NewKeyFromSeed(raw).Public().(ed25519.PublicKey)
	return s.SigningKeys[service], base64.StdEncoding.EncodeToString(pub), nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return b
}

func password() string { return hex.EncodeToString(random(20)) }

func key() string { return base64.StdEncoding.EncodeToString(random(32)) }
