// Package verifying holds every chain of consent records against its keys, its head and the log of heads, and says what is not as it was
// written. It changes nothing.

package consentlog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"ringfence.dev/libs/service"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// ErrBroken says that something is not as it was written; what, was printed.
var ErrBroken = errors.New("the consent records are not as they were written")

// Verify prints every break to out, the first row of each chain that is wrong, and a line that sums up, to a script (service.Scripted) all of it in one object; ErrBroken when there was any.
// headLog "": there is no log of heads, and rows that were cut off with their head cannot be missed.
func Verify(ctx context.Context, of *store.Archive, keys *consentchain.Keys, headLog string, out io.Writer) error {
	heads := consentchain.NewHeads(keys)
	if headLog != "" {
		if err := readLog(headLog, heads); err != nil {
			return err
		}
	}
	chains, told := len(heads.Of), time.Time{}
	if headLog != "" {
		told = time.Now().Add(-patience)
	}
	found, err := of.Verify(ctx, heads.Of, told)
	if err != nil {
		return err
	}
	said := verdict{Chains: found.Chains, Rows: found.Rows, Broken: append([]string{}, heads.Faults...), breaks: len(found.Breaks)}
	for _, broken := range found.Breaks {
		said.Broken = append(said.Broken, broken.String())
	}
	if headLog != "" {
		said.HeadLog = &readHeads{Lines: heads.Lines, Cut: heads.Cut, Chains: chains}
	}
	if err := said.print(ctx, out); err != nil {
		return err
	}
	if len(said.Broken) > 0 {
		return ErrBroken
	}
	return nil
}

// verdict is what Run says.
type verdict struct {
	Chains int64 `json:"chains"`
	Rows   int64 `json:"rows"`
	// HeadLog is null where CONSENT_HEAD_LOG is not set.
	HeadLog *readHeads `json:"head_log"`
	// Broken are the head log's faults and then the breaks.
	Broken []string `json:"broken"`
	breaks int
}

type readHeads struct {
	Lines  int64 `json:"lines"`
	Cut    int64 `json:"cut"`
	Chains int   `json:"chains"`
}

func (v verdict) print(ctx context.Context, out io.Writer) error {
	if service.Scripted(ctx) {
		return json.NewEncoder(out).Encode(v)
	}
	for _, broken := range v.Broken {
		fmt.Fprintln(out, broken)
	}
	if v.HeadLog != nil {
		fmt.Fprintf(out, "head log: %d lines (%d cut short), %d chains\n", v.HeadLog.Lines, v.HeadLog.Cut, v.HeadLog.Chains)
	} else {
		fmt.Fprintln(out, "head log: none (CONSENT_HEAD_LOG is not set): rows cut off together with their head are not missed")
	}
	_, err := fmt.Fprintf(out,
		"consent records: %d rows in %d chains, %d broken\n", v.Rows, v.Chains, v.breaks)
	return err
}

// patience is how long a row may be unknown to the log, which is written every minute by a clock that is not the database's.
const patience = 5 * time.Minute

// longest bounds a line; ours are a tenth of it.
const longest = 4 << 10

func readLog(path string, heads *consentchain.Heads) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		heads.Faults = append(heads.Faults, "the head log "+path+" is not there")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open head log: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, longest), longest)
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			heads.Read(lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read head log behind line %d: %w", heads.Lines, err)
	}
	return nil
}
