// Command compose validates a Compose file without a container engine. It uses the schema of the
// Compose specification. It resolves anchors, environment files and dependencies, as `docker
// compose config` does. compose FILE prints the resolved project as JSON. It exits with status 1 if
// the file is invalid.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "compose takes the path of a compose file")
		os.Exit(2)
	}
	if err := resolve(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func resolve(ctx context.Context, file string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(filepath.Dir(file)), cli.WithConsistency(true), cli.WithInterpolation(true))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out, err := project.MarshalJSON()
	if err != nil {
		return fmt.Errorf("write %s as JSON: %w", file, err)
	}
	_, err = os.Stdout.Write(append(out, '\n'))
	return err
}
