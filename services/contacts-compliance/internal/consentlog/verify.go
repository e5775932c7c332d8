// Package consentlog keeps the consent records verifiable: it writes the head log and verifies the
// chains.
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

// ErrBroken is returned if Verify found a break. Verify has printed all breaks before it returns.
var ErrBroken = errors.New("the consent records were changed")

// Verify verifies every chain. It prints the first break of each chain and a summary to out, or one
// JSON object if the caller is a script (service.Scripted). It returns ErrBroken if there is a
// break.
//
// headLog is the path of the head log. If it is empty, Verify cannot detect rows that were removed
// together with their head.
func Verify(ctx context.Context, archive *store.Archive, keys *consentchain.Keys, headLog string, out io.Writer) error {
	heads := consentchain.NewHeadLogReader(keys)
	if headLog != "" {
		if err := readHeadLog(headLog, heads); err != nil {
			return err
		}
	}
	chains, loggedBefore := len(heads.Last), time.Time{}
	if headLog != "" {
		loggedBefore = time.Now().Add(-headLogDelay)
	}
	result, err := archive.Verify(ctx, heads.Last, loggedBefore)
	if err != nil {
		return err
	}
	rep := report{Chains: result.Chains, Rows: result.Rows, Broken: append([]string{}, heads.Faults...),
		breaks: len(result.Breaks)}
	for _, broken := range result.Breaks {
		rep.Broken = append(rep.Broken, broken.String())
	}
	if headLog != "" {
		rep.HeadLog = &headLogReport{Lines: heads.Lines, Cut: heads.Incomplete, Chains: chains}
	}
	if err := rep.print(ctx, out); err != nil {
		return err
	}
	if len(rep.Broken) > 0 {
		return ErrBroken
	}
	return nil
}

type report struct {
	Chains int64 `json:"chains"`
	Rows   int64 `json:"rows"`
	// HeadLog is null if CONSENT_HEAD_LOG is not set.
	HeadLog *headLogReport `json:"head_log"`
	// Broken lists the faults of the head log, then the breaks of the chains.
	Broken []string `json:"broken"`
	breaks int
}

type headLogReport struct {
	Lines  int64 `json:"lines"`
	Cut    int64 `json:"cut"`
	Chains int   `json:"chains"`
}

func (v report) print(ctx context.Context, out io.Writer) error {
	if service.Scripted(ctx) {
		return json.NewEncoder(out).Encode(v)
	}
	for _, broken := range v.Broken {
		fmt.Fprintln(out, broken)
	}
	if v.HeadLog != nil {
		fmt.Fprintf(out, "head log: %d lines (%d incomplete), %d chains\n", v.HeadLog.Lines, v.HeadLog.Cut, v.HeadLog.Chains)
	} else {
		fmt.Fprintln(out,
			"head log: none (CONSENT_HEAD_LOG is not set): rows removed together with their head are not detected")
	}
	_, err := fmt.Fprintf(out,
		"consent records: %d rows in %d chains, %d broken\n", v.Rows, v.Chains, v.breaks)
	return err
}

// headLogDelay is the age after which a row must be in the head log. The log is written every
// minute, and the clocks of the service and the database can differ.
const headLogDelay = 5 * time.Minute

// maxLine is the maximum length of a line in bytes. It is about ten times the length of a normal
// line.
const maxLine = 4 << 10

func readHeadLog(path string, heads *consentchain.HeadLogReader) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		heads.Faults = append(heads.Faults, "the head log "+path+" does not exist")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open head log: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, maxLine), maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			heads.ReadLine(lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read head log after line %d: %w", heads.Lines, err)
	}
	return nil
}
