package service

import "runtime/debug"

// The linker sets version: -ldflags '-X ringfence.dev/libs/service.version=1.2.3'
// (deploy/Dockerfile).
var version string

// Version returns the version of this binary, or "devel" if the build set no version.
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok && built.Main.Version != "" && built.Main.Version != "(devel)" {
		return built.Main.Version
	}
	return "devel"
}
