package recordings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// Spool is the directory of the recordings of live calls. A file in the directory contains the name
// of the spool. All processes that use the directory, now or later, read the same name.
type Spool struct {
	dir  string
	name uuid.UUID
}

const nameFile = "spool.id"

// OpenSpool opens the directory. If the directory does not exist, OpenSpool creates it.
func OpenSpool(dir string) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the spool of recordings: %w", err)
	}
	path := filepath.Join(dir, nameFile)
	made, err := os.CreateTemp(dir, "name-*")
	if err != nil {
		return nil, fmt.Errorf("write into the spool of recordings: %w", err)
	}
	defer func() { _ = os.Remove(made.Name()) }()
	_, err = made.WriteString(uuid.NewString())
	if err = errors.Join(err, made.Sync(), made.Close()); err != nil {
		return nil, fmt.Errorf("store the name of the spool of recordings: %w", err)
	}
	// The creation of the link is atomic, so the first process determines the name.
	if err := os.Link(made.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("store the name of the spool of recordings: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the spool's name: %w", err)
	}
	name, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the spool's name in %s: %w", path, err)
	}
	return &Spool{dir: dir, name: name}, nil
}

// Name returns the spool's name. All processes that use the directory get the same name.
func (s *Spool) Name() uuid.UUID { return s.name }

func (s *Spool) path(callID uuid.UUID) string { return filepath.Join(s.dir, callID.String()+".wav") }

// createTape also locks the file, which stays locked while the process writes it.
func (s *Spool) createTape(callID uuid.UUID) (*Tape, error) {
	file, err := os.OpenFile(s.path(callID), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lockFile(file); err == nil {
		_, err = file.Write(Header(0))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return newTape(file), nil
}

// errBusy means that another process writes the file.
var errBusy = errors.New("the recording is being written")

// lockFile returns errBusy if another process has locked the file. The operating system releases
// the lock of a killed process.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errBusy
	}
	return err
}

// repairFile corrects the header according to the length of the file. sound is the number of bytes
// of audio. The error is errBusy if a process is writing the file, and os.ErrNotExist if there is
// no file.
func (s *Spool) repairFile(callID uuid.UUID) (sound int64, err error) {
	file, err := os.OpenFile(s.path(callID), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := lockFile(file); err != nil {
		return 0, err
	}
	return repairHeader(file)
}

// repairHeader also removes an incomplete sample at the end. sound is the number of bytes of audio.
func repairHeader(file *os.File) (sound int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	sound = max(info.Size()-HeaderBytes, 0) &^ 1
	if err := file.Truncate(HeaderBytes + sound); err != nil {
		return 0, err
	}
	if _, err := file.WriteAt(Header(sound), 0); err != nil {
		return 0, err
	}
	return sound, file.Sync()
}

func (s *Spool) files() (calls []uuid.UUID, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the files in the spool of recordings: %w", err)
	}
	for _, entry := range entries {
		if name, wav := strings.CutSuffix(entry.Name(), ".wav"); wav {
			if id, err := uuid.Parse(name); err == nil {
				calls = append(calls, id)
			}
		}
	}
	return calls, nil
}
