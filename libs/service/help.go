package service

import (
	"flag"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
)

// Variable is one line in the table of environment variables that --help prints.
type Variable struct {
	Name     string
	Default  string
	Required bool
	Help     string
}

// Variables lists the environment variables of C in the order of the fields, including the
// variables of nested structs.
func Variables[C any]() []Variable { return variables(reflect.TypeFor[C](), "") }

func variables(t reflect.Type, prefix string) []Variable {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var found []Variable
	for i := range t.NumField() {
		field := t.Field(i)
		tag, ok := field.Tag.Lookup("env")
		if !ok {
			found = append(found, variables(field.Type, prefix+field.Tag.Get("envPrefix"))...)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			continue
		}
		found = append(found, Variable{
			Name:     prefix + name,
			Default:  field.Tag.Get("envDefault"),
			Required: strings.Contains(options, "required") || strings.Contains(options, "notEmpty"),
			Help:     field.Tag.Get("help"),
		})
	}
	return found
}

func help[C any](out io.Writer, name string, commands Commands[C]) {
	fmt.Fprintf(out, "%s [command]\n\nCommands\n", name)
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(table, "  serve\trun the service until SIGTERM or Ctrl-C (default)\n")
	if commands.Migrate != nil {
		fmt.Fprintf(table, "  migrate\tapply the migrations of the schema and exit\n")
	}
	if commands.Replay != nil {
		fmt.Fprintf(table, "  replay [topic]\tapply the parked records of a topic again; without a topic, list all parked records with the reasons\n    --json\tprint JSON, for scripts\n")
	}
	fmt.Fprintf(table, "  healthy\tcheck the readiness of the service at PRIVATE_ADDR; exit status 1 if it is not ready\n  --version\tprint the version\n")
	for _, further := range commands.Further {
		fmt.Fprintf(table, "  %s\t%s\n", further.Name, further.Help)
		further.flagSet().VisitAll(func(f *flag.Flag) {
			what, help := flag.UnquoteUsage(f)
			if what != "" { // a boolean flag has no value
				what = " <" + what + ">"
			}
			fmt.Fprintf(table, "    --%s%s\t%s\n", f.Name, what, help)
		})
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\nEnvironment\n")
	table = tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, v := range append(Variables[C](), Variables[processConfig]()...) {
		defaultValue := v.Default
		if v.Required {
			defaultValue = "(required)"
		} else if defaultValue == "" {
			defaultValue = "(empty)"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", v.Name, defaultValue, v.Help)
	}
	fmt.Fprintf(table, "  OTEL_EXPORTER_OTLP_ENDPOINT\t(empty)\t"+
		"URL of a collector to which traces are sent (OTLP over HTTP). "+
		"If empty, no traces are sent.\n")
	_ = table.Flush()
}
