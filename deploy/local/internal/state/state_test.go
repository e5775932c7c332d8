package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad_SecretsStayTheSameOverRestarts(t *testing.T) {
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
	if err != nil || app != appAgain || seed != seedAgain || public != publicAgain || again.Ports["kafka"] != 21000 ||
		first.PostgresPassword != again.PostgresPassword || first.AdminToken != again.AdminToken ||
		first.Pepper != again.Pepper || first.SealingKey != again.SealingKey {
		t.Errorf("state after a restart differs: %+v, then %+v (%v)", first, again, err)
	}
	if seed == "" || public == seed || first.Pepper == first.SealingKey {
		t.Error("secrets are empty or one and the same")
	}
	info, err := os.Stat(filepath.Join(dir, "state.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state.json mode = %v %v, want 0600", info.Mode(), err)
	}
}

func TestLoad_HalfWrittenFilesAreNoObstacle(t *testing.T) {
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

func TestLoad_BothCopiesDamagedSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "state.json"), "{")
	write(t, filepath.Join(dir, "state.json.old"), "{")
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "remove "+dir) {
		t.Errorf("Load = %v, want the remedy", err)
	}
}

func TestOpenHome_OneStackAtATime(t *testing.T) {
	t.Setenv("RINGFENCE_HOME", filepath.Join(t.TempDir(), "home"))
	first, err := OpenHome()
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenHome()
	if err == nil || !strings.Contains(err.Error(), "runs on") || strings.Contains(err.Error(), "\n") {
		t.Errorf("second OpenHome = %v, want one line that says that it runs", err)
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
