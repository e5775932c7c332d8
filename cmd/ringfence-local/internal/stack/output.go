package stack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
)

// Console prints the lines of many writers, each under its name, never two mixed in one line.
type Console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	seen   int
}

// longest bounds a line; what is longer is printed in pieces.
const longest = 64 << 10

// NewConsole prints to file, in colour when it is a terminal and NO_COLOR is unset.
func NewConsole(file *os.File) *Console {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Console{out: file, colour: terminal}
}

// Plain prints to any writer without colour.
func Plain(out io.Writer) *Console { return &Console{out: out} }

// Say prints a line of our own.
func (c *Console) Say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.colour {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, text)
}

// Writer prefixes every line with the name and drops those that mute, unless nil, matches.
func (c *Console) Writer(name string, mute *regexp.Regexp) io.Writer {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := fmt.Sprintf("%-21s| ", name)
	if c.colour {
		colours := []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[c.seen%len(colours)], prefix)
		c.seen++
	}
	return &prefixed{console: c, prefix: prefix, mute: mute}
}

// prefixed holds back an unfinished line. One process's stdout and stderr share it.
type prefixed struct {
	console *Console
	prefix  string
	mute    *regexp.Regexp
	partial []byte
}

func (p *prefixed) Write(data []byte) (int, error) {
	p.console.mu.Lock()
	defer p.console.mu.Unlock()
	p.partial = append(p.partial, data...)
	for {
		end := bytes.IndexByte(p.partial, '\n')
		if end < 0 && len(p.partial) < longest {
			return len(data), nil
		}
		if end < 0 {
			end = longest - 1
		}
		line := bytes.TrimRight(p.partial[:end+1], "\r\n")
		if p.mute == nil || !p.mute.Match(line) {
			// A console that is gone (closed terminal) must not stop the child's pipe.
			fmt.Fprintf(p.console.out, "%s%s\n", p.prefix, line)
		}
		p.partial = p.partial[end+1:]
	}
}
