package operator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// columns is how wide the terminal is that is printed on; 0 when it is none.
func columns(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Attended says whether standard input is somebody who can be asked.
func Attended() bool {
	_, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// Stdin is standard input that ends with ctx: Ctrl-C ends a command that waits for it.
func Stdin(ctx context.Context) io.Reader { return until(ctx, os.Stdin) }

func until(ctx context.Context, from io.Reader) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, from)
		_ = writer.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	return reader
}

// Sure is asked before what cannot be taken back; commands embed it.
type Sure struct {
	Yes bool `help:"Do not ask whether it is meant."`
}

// Confirm says what will be and returns nil when it is meant: --yes was said, or somebody at the terminal says so now.
func (s Sure) Confirm(ctx context.Context, d *Client, format string, args ...any) error {
	if s.Yes {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if d.answers == nil {
		return fmt.Errorf("%s: say --yes if that is meant", what)
	}
	_, _ = fmt.Fprintf(d.asides, "%s. Type yes if that is meant: ", Printable(what))
	said, _ := bufio.NewReader(until(ctx, d.answers)).ReadString('\n') // an end is no yes
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.ToLower(strings.TrimSpace(said)) != "yes":
		return errors.New("nothing was done")
	}
	return nil
}
