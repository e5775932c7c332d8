package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Account is the user that runs Postgres, which refuses to run as root.
type Account struct {
	Name string
	// Credential is nil if the account is the user of this process.
	Credential *syscall.Credential
}

// ChooseAccount returns the user of this process. If this process runs as root, it returns the user
// postgres, or another unprivileged user of the system.
func ChooseAccount() (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID != nil || errGID != nil {
			continue
		}
		return Account{Name: name, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return Account{}, fmt.Errorf("postgres refuses to run as root, and this machine has no unprivileged user for it (postgres): run as an ordinary user, or set POSTGRES_URL")
}

func (a Account) canReach(dir string) bool {
	if a.Credential == nil {
		return true
	}
	cmd := exec.Command("/bin/sh", "-c", `cd -- "$1"`, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = a.attributes()
	return cmd.Run() == nil
}

func (a Account) chown(path string) error {
	if a.Credential == nil {
		return nil
	}
	if err := os.Chown(path, int(a.Credential.Uid), int(a.Credential.Gid)); err != nil {
		return fmt.Errorf("change the owner of %s to %s: %w", path, a.Name, err)
	}
	return nil
}

// Place returns the folder for the account's database and for the downloads: in the home
// (.ringfence) if the account can reach it, otherwise in /var/tmp. Other users can open files in
// the folder by name, but cannot list the folder.
func (a Account) Place(home string) (string, error) {
	if a.canReach(home) {
		return home, nil
	}
	sum := sha256.Sum256([]byte(home))
	place := filepath.Join("/var/tmp", "ringfence-"+hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(place, 0o711); err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("make database directory: %w", err)
	}
	info, err := os.Lstat(place)
	if err != nil {
		return "", fmt.Errorf("read attributes of %s: %w", place, err)
	}
	// Any user can create a folder in /var/tmp, so Place refuses a folder of another user.
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s exists and belongs to another user: remove it, or set RINGFENCE_HOME to a directory that user %s can reach", place, a.Name)
	}
	if err := os.Chmod(place, 0o711); err != nil { // the umask can have removed the x bit
		return "", fmt.Errorf("make %s accessible to %s: %w", place, a.Name, err)
	}
	return place, nil
}

func (a Account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.Credential}
}
