// Package service owns a process's life: its parts start together, SIGTERM and Ctrl-C drain them,
// the first fault ends them all.
package service

import "context"

// Part is one thing a service does until its context ends.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Run starts the parts and waits. It ends when ctx ends, on SIGTERM or SIGINT, or when a part fails; then the
// others are told to stop and get 20 s. Parts stop in reverse order of the list: what feeds comes first, what is fed last.
func Run(ctx context.Context, parts ...Part) error { panic("unwritten") }

// Commands are what every service binary can do: serve (the default), migrate, replay <topic>.
type Commands[C any] struct {
	Serve func(ctx context.Context, cfg C) error
	// Migrate brings the schema up to date and ends.
	Migrate func(ctx context.Context, cfg C) error
	// Replay puts the parked records of one topic back; nil when the service consumes nothing.
	Replay func(ctx context.Context, cfg C, topic string) error
}

// Main is the frame of every main.go: it parses the environment into C (all faults listed together, exit 2), answers --help with
// the commands and a table of the variables, and runs the command with a context ended by SIGTERM or SIGINT.
func Main[C any](name string, commands Commands[C]) { panic("unwritten") }
