package service

import "runtime/debug"

// version is set by the linker: -ldflags '-X ringfence.dev/libs/service.version=1.2.3'
// (deploy/Dockerfile).
var version string

// Version returns the version of this binary, or "devel" if it was built without one.
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok && built.Main.Version != "" && built.Main.Version != "(devel)" {
		return built.Main.Version
	}
	return "devel"
}
