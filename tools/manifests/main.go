// Command manifests validates rendered manifests as an API server does. It decodes them strictly
// into the Kubernetes types, so an unknown field, a wrong type and a duplicate field are errors.
// Then it runs Kubernetes' validation of new objects. It reads YAML documents from standard input
// and prints every error with its object. It exits with status 1 if there are errors. For two kinds
// of the Prometheus operator, it accepts only the fields that the charts use.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"
)

func main() {
	decoded, faults := check(os.Stdin)
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if decoded == 0 {
		fmt.Fprintln(os.Stderr, "no object was read")
	}
	if len(faults) > 0 || decoded == 0 {
		os.Exit(1)
	}
	fmt.Printf("%d objects are what Kubernetes knows\n", decoded)
}

func check(in io.Reader) (decoded int, faults []error) {
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDecoder()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return decoded, faults
		}
		if err != nil {
			return decoded, append(faults, fmt.Errorf("split documents: %w", err))
		}
		var about head
		if err := yaml.Unmarshal(text, &about); err != nil {
			faults = append(faults, fmt.Errorf("read a document: %w", err))
			continue
		}
		if about == (head{}) {
			continue // the document contains only comments
		}
		if err := decode(strict, about, text); err != nil {
			faults = append(faults, fmt.Errorf("%s/%s: %w", about.Kind, about.Metadata.Name, err))
		}
		decoded++
	}
}

type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func decode(strict runtime.Decoder, about head, text []byte) error {
	switch about.APIVersion + " " + about.Kind {
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return yaml.UnmarshalStrict(text, &serviceMonitor{})
	case "monitoring.coreos.com/v1 PrometheusRule":
		return yaml.UnmarshalStrict(text, &prometheusRule{})
	}
	object, _, err := strict.Decode(text, nil, nil)
	if err != nil {
		return err
	}
	return validateObject(object).ToAggregate()
}
