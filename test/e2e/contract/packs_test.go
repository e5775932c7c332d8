package contract

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

// workspaceWithPacks returns a workspace with the country rules of the US. An operator has approved
// the calling hours of the workspace, so that the test can run at night.
func workspaceWithPacks(t *testing.T) *tenant {
	t.Helper()
	w := workspace(t, set{"calling_policy": set{
		"packs": []string{"us"}, "window": set{"start": "00:00", "end": "24:00"}, "override": set{"reason": "the test runs at any hour"},
	}})
	w.topUp(t, "100")
	return w
}

func (w *tenant) preview(t *testing.T, number string) answer {
	t.Helper()
	return w.operator.want(t, 200, "GET", w.admin+"/contacts/"+url.PathEscape(number)+"/preview", nil)
}

func TestCountryRules_WiderHoursNeedAReason(t *testing.T) {
	w := workspace(t)
	looser := set{"packs": []string{"us"}, "window": set{"start": "07:00", "end": "22:00"}}
	if got := w.operator.refused(t, 422, "validation_error", "PATCH", w.admin, set{"calling_policy": looser}); !strings.Contains(got.body, "calling_policy.window") {
		t.Errorf("%s does not name the window", got.body)
	}
	looser["override"] = set{"reason": "our own staff"}
	w.operator.want(t, 200, "PATCH", w.admin, set{"calling_policy": looser})
	w.operator.want(t, 200, "PATCH", w.admin, set{"calling_policy": set{"packs": []string{"us", "fr:service"}}})
	w.operator.refused(t, 422, "validation_error", "PATCH", w.admin, set{"calling_policy": set{"packs": []string{"mars"}}})
}

func TestCountryRules_ConsentAndCapsApplyAtPOSTAndAtDial(t *testing.T) {
	w := workspaceWithPacks(t)
	const florida, crowd = "+13055551200", "+13055551300"
	if got := w.write.refused(t, 422, "consent_withdrawn", "POST", "/v1/calls", w.order(florida)); !strings.Contains(got.body, "pack us") {
		t.Errorf("%s does not say which rule", got.body)
	}
	w.consent(t, florida, "consented")
	w.consent(t, crowd, "consented")

	// Three calls in 24 hours are permitted, so the fourth waits until the first is a day old.
	for range 3 {
		id := w.write.want(t, 202, "POST", "/v1/calls", w.order(florida)).text("id")
		if got := w.ended(t, id); got.text("status") != "completed" {
			t.Fatalf("a call within the cap: %s", got.body)
		}
	}
	if got := w.write.refused(t, 422, "outside_calling_hours", "POST", "/v1/calls", w.order(florida)); !strings.Contains(got.body, "frequency cap") {
		t.Errorf("%s does not say which rule", got.body)
	}
	waits := w.write.want(t, 202, "POST", "/v1/calls", w.order(florida, "schedule_if_outside_hours", true))
	if in := time.Until(instant(t, waits.text("scheduled_for"))); in < 23*time.Hour {
		t.Errorf("time.Until: in = %v, want at least %v", in, 23*time.Hour)
	} else if in > 24*time.Hour {
		t.Errorf("time.Until: in = %v, want at most %v", in, 24*time.Hour)
	}
	got := w.preview(t, florida)
	sharedstack.Equal(t, "rule", got.text("rule"), "frequency_cap")
	sharedstack.Equal(t, "code", got.text("code"), "outside_calling_hours")
	if got.text("next_at") == "" {
		t.Errorf("next_at = %v, want a value", got.text("next_at"))
	}

	// All six requests pass the pre-check, because no request is dialed yet. At dial time only
	// three are permitted.
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = w.placeInOneHour(t, crowd)
	}
	makeDue(t, ids...)
	ends := map[string]int{}
	for _, id := range ids {
		got := w.ended(t, id)
		ends[strings.TrimSpace(got.text("status")+" "+got.text("error_code"))]++
	}
	if ends["completed"] != 3 {
		t.Errorf(`ends["completed"] = %v, want 3`, ends["completed"])
	} else if ends["blocked outside_calling_hours"] != 3 {
		t.Errorf(`ends["blocked outside_calling_hours"] = %v, want 3`, ends["blocked outside_calling_hours"])
	}
}
