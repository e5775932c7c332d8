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

// terminalWidth returns the width of the terminal, or 0 without a terminal.
func terminalWidth(out io.Writer) int {
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

// Attended reports whether standard input is a terminal.
func Attended() bool {
	_, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// Stdin returns a reader of standard input. The reader ends when ctx ends, so Ctrl-C ends a command
// that waits for input.
func Stdin(ctx context.Context) io.Reader { return readerUntil(ctx, os.Stdin) }

func readerUntil(ctx context.Context, from io.Reader) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, from)
		_ = writer.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	return reader
}

// Confirmation contains the flag --yes of destructive commands.
type Confirmation struct {
	Yes bool `help:"Do not ask for confirmation."`
}

// Confirm prints what the command will do. It returns nil if --yes is set or the user confirms at
// the terminal.
func (s Confirmation) Confirm(ctx context.Context, d *Client, format string, args ...any) error {
	if s.Yes {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if d.answers == nil {
		return fmt.Errorf("%s: add --yes to confirm", what)
	}
	_, _ = fmt.Fprintf(d.asides, "%s. Type yes to confirm: ", Printable(what))
	// The error is ignored: the end of the input is not a confirmation.
	reply, _ := bufio.NewReader(readerUntil(ctx, d.answers)).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.ToLower(strings.TrimSpace(reply)) != "yes":
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}
