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
// of the spool, so that all processes that use the directory have the same name.
type Spool struct {
	dir  string
	name uuid.UUID
}

const nameFile = "spool.id"

// OpenSpool opens the directory, and creates it if it does not exist.
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
	// The link is created atomically. So the first process determines the name of the spool.
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

// Name returns the spool's name. It is the same for all processes that use the directory.
func (s *Spool) Name() uuid.UUID { return s.name }

func (s *Spool) path(callID uuid.UUID) string { return filepath.Join(s.dir, callID.String()+".wav") }

// createTape creates and locks the file of a recording. The file stays locked while this process
// writes it.
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

// errBusy means that another process is writing the file.
var errBusy = errors.New("the recording is being written")

// lockFile locks a file. It returns errBusy if another process has locked it. The operating system
// releases the locks of a killed process.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errBusy
	}
	return err
}

// repairFile corrects the header of a file according to the file's length. sound is the number of
// bytes of audio. The error is errBusy if a process is writing the file, and os.ErrNotExist if
// there is no file.
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

// repairHeader corrects the header of a file and removes an incomplete sample at the end. sound is
// the number of bytes of audio.
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
