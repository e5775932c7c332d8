// Command fuzz finds every fuzz target under the directories it is given and runs each for a while, in turn. It stops at the first
// that fails and says where the input was written and how to run it again.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long each target runs")
	only := flag.String("run", "", "run only the targets that match this expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, failed, err := run(ctx, flag.Args(), *each, *only, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// target is one fuzz function and the built tests it lies in.
type target struct {
	name   string
	dir    string
	binary string
}

// run fuzzes everything under the roots. failed is one at most: the first failure is the last target.
func run(ctx context.Context, roots []string, each time.Duration, only string, out io.Writer) (passed, failed int, err error) {
	work, err := os.MkdirTemp("", "ringfence-fuzz-")
	if err != nil {
		return 0, 0, fmt.Errorf("make a folder for the built tests: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	targets, err := find(ctx, roots, work, only, out)
	if err != nil {
		return 0, 0, err
	}
	fmt.Fprintf(out, "%d targets, %s each: about %s\n", len(targets), each, (time.Duration(len(targets)) * each).Round(time.Second))
	begun := time.Now()
	for i, t := range targets {
		took := time.Now()
		said, err := t.fuzz(ctx, each)
		if ctx.Err() != nil {
			return passed, failed, errors.New("interrupted")
		}
		if err != nil {
			fmt.Fprintf(out, "%d/%d %s FAILED in %s\n%s\n", i+1, len(targets), t.name, t.dir, said)
			fmt.Fprintf(out, "The input lies under %s; commit it with the repair. Again: (cd %s && go test -run '^%s$' .)\n",
				filepath.Join(t.dir, "testdata", "fuzz", t.name), t.dir, t.name)
			return passed, 1, nil
		}
		passed++
		fmt.Fprintf(out, "%d/%d %s %s ok (%s)\n", i+1, len(targets), t.name, time.Since(took).Round(time.Second), t.dir)
	}
	fmt.Fprintf(out, "took %s in all\n", time.Since(begun).Round(time.Second))
	return passed, failed, nil
}

var declared = regexp.MustCompile(`(?m)^func Fuzz`)

// find builds the tests of every folder that declares a target, and asks them for their targets' names.
func find(ctx context.Context, roots []string, work, only string, out io.Writer) ([]target, error) {
	dirs, err := folders(roots)
	if err != nil {
		return nil, err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("read -run: %w", err)
	}
	var targets []target
	for i, dir := range dirs {
		fmt.Fprintf(out, "building %d/%d %s\n", i+1, len(dirs), dir)
		binary := filepath.Join(work, fmt.Sprintf("%d.test", i))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-fuzz=Fuzz", "-o", binary, ".") // -fuzz: with coverage, which guides it
		build.Dir = dir
		if said, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", dir, err, said)
		}
		list := exec.CommandContext(ctx, binary, "-test.list", "^Fuzz")
		list.Dir = dir
		said, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list the targets of %s: %w", dir, err)
		}
		for name := range strings.FieldsSeq(string(said)) {
			if strings.HasPrefix(name, "Fuzz") && wanted.MatchString(name) {
				targets = append(targets, target{name, dir, binary})
			}
		}
	}
	if len(targets) == 0 {
		return nil, errors.New("no fuzz target was found")
	}
	return targets, nil
}

// folders are those whose tests declare a target, in order.
func folders(roots []string) ([]string, error) {
	var dirs []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || slices.Contains(dirs, filepath.Dir(path)) {
				return err
			}
			source, err := os.ReadFile(path)
			if err == nil && declared.Match(source) {
				dirs = append(dirs, filepath.Dir(path))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for targets in %s: %w", root, err)
		}
	}
	return dirs, nil
}

// fuzz runs one target. What it says is kept for when it fails.
func (t target) fuzz(ctx context.Context, each time.Duration) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	command := exec.CommandContext(ctx, t.binary, "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime", each.String(),
		"-test.fuzzcachedir", filepath.Join(cache, "ringfence-fuzz", filepath.FromSlash(t.dir)), "-test.fuzzminimizetime", "5s")
	command.Dir = t.dir
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // it ends its workers
	command.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	err = command.Run()
	return said.String(), err
}
