package compose_test

import (
	"slices"
	"strings"
	"testing"
)

// The console may connect to the gateway's listener and to no other part of the release. It needs
// no secret.
func TestCharts_ConsoleReachesTheGatewayOnly(t *testing.T) {
	t.Parallel()
	rendered := manifests(t, "console", requiredArgs(t, "console")...)
	objects := objectsIn(t, "console", rendered)
	workload, ok := objects["Deployment/console"]
	if !ok {
		t.Fatalf("objects = %v, want a Deployment", len(objects))
	}
	if got := len(workload.Spec.Template.Spec.Containers); got != 1 {
		t.Fatalf("containers = %d, want 1", got)
	}
	for _, variable := range workload.Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom.SecretKeyRef.Name != "" {
			t.Errorf("%s is read from a Secret, want none", variable.Name)
		}
	}
	settings := objects["ConfigMap/console"].Data
	wantEqual(t, "GATEWAY_CONSOLE_URL", settings["GATEWAY_CONSOLE_URL"], "http://gateway-console:8082")
	if policy := objects["NetworkPolicy/console"]; policy.Kind == "" {
		t.Error("no NetworkPolicy is rendered")
	}
	egress := valuesOf(t, "console").Network
	if slices.Concat(egress.Asks, egress.Probes) != nil {
		t.Errorf("the console calls %v, want only the rule for the gateway's listener", egress.Asks)
	}
	for _, port := range []string{"5432", "9092"} {
		if strings.Contains(string(rendered), port) {
			t.Errorf("the manifests contain the port %s, which the console does not use", port)
		}
	}
}
