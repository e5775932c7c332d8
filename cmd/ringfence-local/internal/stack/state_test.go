package stack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad_RestartKeepsSecrets(t *testing.T) {
	dir := t.TempDir()
	first := load(t, dir)
	_, app := first.Schema("calls")
	seed, public, err := first.SigningKey("calls")
	if err != nil {
		t.Fatal(err)
	}
	first.Ports["kafka"] = 21000
	if err := first.Save(); err != nil {
		t.Fatal(err)
	}
	again := load(t, dir)
	_, appAgain := again.Schema("calls")
	seedAgain, publicAgain, err := again.SigningKey("calls")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []struct{ name, before, after string }{
		{name: "schema password", before: app, after: appAgain},
		{name: "signing key", before: seed, after: seedAgain},
		{name: "public key", before: public, after: publicAgain},
		{name: "Postgres password", before: first.PostgresPassword, after: again.PostgresPassword},
		{name: "admin token", before: first.AdminToken, after: again.AdminToken},
		{name: "pepper", before: first.Pepper, after: again.Pepper},
		{name: "sealing key", before: first.SealingKey, after: again.SealingKey},
	} {
		if secret.before == "" {
			t.Errorf("the %s is empty", secret.name)
		}
		if secret.after != secret.before {
			t.Errorf("%s after a restart = %q, want %q", secret.name, secret.after, secret.before)
		}
	}
	if got := again.Ports["kafka"]; got != 21000 {
		t.Errorf("port of kafka after a restart = %d, want 21000", got)
	}
	if public == seed {
		t.Error("the public key is the signing key")
	}
	if first.Pepper == first.SealingKey {
		t.Error("the pepper is the sealing key")
	}
	info, err := os.Stat(filepath.Join(dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode of state.json = %v, want 0600", got)
	}
}

func TestLoad_IgnoresIncompleteFiles(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"a temporary file left behind": func(t *testing.T, path string) { write(t, path+".half", `{"ports":`) },
		"a truncated state":            func(t *testing.T, path string) { write(t, path, `{"postgres_password": "4f`) },
		"an empty state":               func(t *testing.T, path string) { write(t, path, "") },
		"no state but its copy": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := load(t, dir)
			if err := first.Save(); err != nil {
				t.Fatal(err)
			}
			damage(t, filepath.Join(dir, "state.json"))
			again := load(t, dir)
			if again.PostgresPassword != first.PostgresPassword {
				t.Error("the password that opens the database was lost")
			}
			if err := again.Save(); err != nil {
				t.Errorf("save over the damage: %v", err)
			}
		})
	}
}

func TestLoad_ErrorNamesTheRemedyIfBothStateFilesAreDamaged(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "state.json"), "{")
	write(t, filepath.Join(dir, "state.json.old"), "{")
	_, err := Load(dir)
	if err == nil {
		t.Fatal("Load of two damaged copies succeeded, want an error")
	}
	if want := "remove " + dir; !strings.Contains(err.Error(), want) {
		t.Errorf("Load = %v, want it to contain %q", err, want)
	}
}

func TestLoad_RefusesTheStateOfAVersionBeforeTheFirstRelease(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "state.json"), `{"ports":{"postgres":5432},"postgres_password":"secret"}`)
	_, err := Load(dir)
	if err == nil {
		t.Fatal("Load of a state without a layout succeeded, want an error")
	}
	for _, want := range []string{"set RINGFENCE_HOME", "rm -r " + dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Load = %v, want it to contain %q", err, want)
		}
	}
}

func TestOpenHome_SecondStackIsRefused(t *testing.T) {
	t.Setenv("RINGFENCE_HOME", filepath.Join(t.TempDir(), "home"))
	first, err := OpenHome()
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenHome()
	if err == nil {
		t.Fatal("second OpenHome succeeded, want an error")
	}
	if want := "is already running"; !strings.Contains(err.Error(), want) {
		t.Errorf("second OpenHome = %v, want it to contain %q", err, want)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("second OpenHome = %q, want one line", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenHome()
	if err != nil {
		t.Fatalf("OpenHome after the first ended: %v", err)
	}
	_ = again.Close()
}

func load(t *testing.T, dir string) *State {
	t.Helper()
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFreeSpace_IsUnknownForAMissingDirectory(t *testing.T) {
	if got := FreeSpace(t.TempDir() + "/missing"); got != -1 {
		t.Errorf("FreeSpace of a missing directory = %d, want -1", got)
	}
}
