package stack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
)

// Console prints the lines of many writers, each with the name of its writer. Two lines are never
// mixed.
type Console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	seen   int
}

// maxLine is the largest length of a line in bytes. Longer lines are split.
const maxLine = 64 << 10

// NewConsole returns a console that prints to file. It uses colors if file is a terminal and
// NO_COLOR is unset.
func NewConsole(file *os.File) *Console {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Console{out: file, colour: terminal}
}

// Plain returns a console that prints to the writer and uses no colors.
func Plain(out io.Writer) *Console { return &Console{out: out} }

// Say prints a message of ringfence-local.
func (c *Console) Say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.colour {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, text)
}

// Writer returns a writer that adds the name to every line. The writer drops lines that match mute.
// If mute is nil, it drops none.
func (c *Console) Writer(name string, mute *regexp.Regexp) io.Writer {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := fmt.Sprintf("%-21s| ", name)
	if c.colour {
		colours := []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[c.seen%len(colours)], prefix)
		c.seen++
	}
	return &prefixWriter{console: c, prefix: prefix, mute: mute}
}

// prefixWriter keeps an unfinished line until the rest of the line arrives. The stdout and stderr
// of a process share one prefixWriter.
type prefixWriter struct {
	console *Console
	prefix  string
	mute    *regexp.Regexp
	partial []byte
}

func (p *prefixWriter) Write(data []byte) (int, error) {
	p.console.mu.Lock()
	defer p.console.mu.Unlock()
	p.partial = append(p.partial, data...)
	for {
		end := bytes.IndexByte(p.partial, '\n')
		if end < 0 && len(p.partial) < maxLine {
			return len(data), nil
		}
		if end < 0 {
			end = maxLine - 1
		}
		line := bytes.TrimRight(p.partial[:end+1], "\r\n")
		if p.mute == nil || !p.mute.Match(line) {
			// Ignore the error. If Write returned the error, the child's output would no longer be read, and
			// the child would block.
			fmt.Fprintf(p.console.out, "%s%s\n", p.prefix, line)
		}
		p.partial = p.partial[end+1:]
	}
}
