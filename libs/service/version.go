package service

import "runtime/debug"

// version is stamped by the linker: -ldflags '-X ringfence.dev/libs/service.version=1.2.3' (deploy/Dockerfile).
var version string

// Version is what this binary was stamped with; "devel" when it was not.
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok && built.Main.Version != "" && built.Main.Version != "(devel)" {
		return built.Main.Version
	}
	return "devel"
}
