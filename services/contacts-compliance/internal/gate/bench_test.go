package gate_test

import (
	"testing"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// The benchmark measures a decision without its two database queries.
func BenchmarkEvaluate_WithoutPolicyPacks(b *testing.B) {
	for b.Loop() {
		f := gate.Facts{Stage: gate.Dial, DND: "clean", Consent: "consented", Policy: gate.DefaultPolicy(),
			NumberZones: window.Zones(phone.Number("+13055551234").Zones())}
		gate.Evaluate(f)
	}
}

func BenchmarkEvaluate_WithPolicyPacks(b *testing.B) {
	l := library(b)
	base := withPacks(b, "+13055551234", "us")
	for b.Loop() {
		number, f := phone.Number("+13055551234"), base
		place := number.Place()
		f.NumberZones, f.Rules = window.Zones(number.Zones()), l.For(f.Policy.Choices(), place)
		gate.Evaluate(f)
	}
}
