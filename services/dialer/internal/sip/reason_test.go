package sip_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
)

// The rows repeat the table in docs/reference/api/calls.md#sip-responses-and-hangup-causes.
func TestFinal_EachResponseHasItsDocumentedCause(t *testing.T) {
	t.Parallel()
	q850 := func(n int) []string { return []string{fmt.Sprintf(`Q.850;cause=%d;text="x"`, n)} }
	tests := []struct {
		name  string
		final sip.Final
		want  callstate.Cause
	}{
		{name: "no response", final: sip.Final{}, want: callstate.RecoveryOnTimerExpire},
		{name: "300 (redirect)", final: sip.Final{Status: 300}, want: callstate.NoRouteDestination},
		{name: "302 (redirect)", final: sip.Final{Status: 302}, want: callstate.NoRouteDestination},
		{name: "400", final: sip.Final{Status: 400}, want: callstate.NormalTemporaryFailure},
		{name: "401 to credentials", final: sip.Final{Status: 401}, want: callstate.ProviderAuthFailed},
		{name: "403", final: sip.Final{Status: 403}, want: callstate.CallRejected},
		{name: "404", final: sip.Final{Status: 404}, want: callstate.UnallocatedNumber},
		{name: "407 to credentials", final: sip.Final{Status: 407}, want: callstate.ProviderAuthFailed},
		{name: "408", final: sip.Final{Status: 408}, want: callstate.NoUserResponse},
		{name: "410", final: sip.Final{Status: 410}, want: callstate.NumberChanged},
		{name: "415", final: sip.Final{Status: 415}, want: callstate.IncompatibleDest},
		{name: "416", final: sip.Final{Status: 416}, want: callstate.InvalidNumberFormat},
		{name: "480 before ringing", final: sip.Final{Status: 480}, want: callstate.SubscriberAbsent},
		{name: "480 after ringing", final: sip.Final{Status: 480, Rang: true}, want: callstate.NoAnswer},
		{name: "484", final: sip.Final{Status: 484}, want: callstate.InvalidNumberFormat},
		{name: "486", final: sip.Final{Status: 486}, want: callstate.UserBusy},
		{name: "487 without a CANCEL", final: sip.Final{Status: 487}, want: callstate.NormalTemporaryFailure},
		{name: "488", final: sip.Final{Status: 488}, want: callstate.IncompatibleDest},
		{name: "500", final: sip.Final{Status: 500}, want: callstate.NormalTemporaryFailure},
		{name: "501", final: sip.Final{Status: 501}, want: callstate.FacilityRejected},
		{name: "502", final: sip.Final{Status: 502}, want: callstate.NetworkOutOfOrder},
		{name: "503", final: sip.Final{Status: 503}, want: callstate.NormalTemporaryFailure},
		{
			name: "503 with Retry-After", final: sip.Final{Status: 503, RetryAfter: true},
			want: callstate.SwitchCongestion,
		},
		{name: "504", final: sip.Final{Status: 504}, want: callstate.RecoveryOnTimerExpire},
		{name: "600", final: sip.Final{Status: 600}, want: callstate.UserBusy},
		{name: "603", final: sip.Final{Status: 603}, want: callstate.CallRejected},
		{name: "604", final: sip.Final{Status: 604}, want: callstate.UnallocatedNumber},
		{name: "606", final: sip.Final{Status: 606}, want: callstate.IncompatibleDest},
		{name: "607", final: sip.Final{Status: 607}, want: callstate.SpamBlocked},
		{name: "608", final: sip.Final{Status: 608}, want: callstate.SpamBlocked},
		{name: "another 6xx", final: sip.Final{Status: 699}, want: callstate.CallRejected},
		{name: "Q.850 overrides the status", final: sip.Final{Status: 480, Reasons: q850(19)}, want: callstate.NoAnswer},
		{
			name: "Q.850 21 (call rejected)", final: sip.Final{Status: 500, Reasons: q850(21)},
			want: callstate.CallRejected,
		},
		{
			name: "Q.850 27 (destination out of order)", final: sip.Final{Status: 500, Reasons: q850(27)},
			want: callstate.DestinationOutOfOrder,
		},
		{
			name: "unknown Q.850 number", final: sip.Final{Status: 486, Reasons: q850(34)},
			want: callstate.UserBusy,
		},
		{
			name:  "Q.850 16 (normal clearing) is ignored",
			final: sip.Final{Status: 486, Reasons: q850(16)}, want: callstate.UserBusy,
		},
		{name: "Q.850 after another protocol",
			final: sip.Final{Status: 480, Reasons: []string{`SIP;cause=486;text="Busy, here; cause=3", q.850 ; cause = 17`}},
			want:  callstate.UserBusy},
		{
			name:  "Q.850 in a second header",
			final: sip.Final{Status: 480, Reasons: []string{"SIP;cause=200", "Q.850;cause=1"}},
			want:  callstate.UnallocatedNumber,
		},
		{name: "Q.850 inside quotes is ignored",
			final: sip.Final{Status: 480, Reasons: []string{`SIP;text=",Q.850;cause=17"`}}, want: callstate.SubscriberAbsent},
		{name: "Q.850 number out of range",
			final: sip.Final{
				Status: 486, Reasons: []string{"Q.850;cause=128", "Q.850;cause=0", "Q.850;cause=-1", "Q.850;cause="},
			},
			want: callstate.UserBusy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.final.Cause(); got != tt.want {
				t.Errorf("cause = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestByeCause_IsTheQ850CauseOrNormalClearing(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]callstate.Cause{
		"": callstate.NormalClearing, "Q.850;cause=16": callstate.NormalClearing, "Q.850;cause=31": callstate.NormalClearing, "SIP;cause=200": callstate.NormalClearing,
		"Q.850;cause=38": callstate.NetworkOutOfOrder, "Q.850;cause=102": callstate.RecoveryOnTimerExpire, "Q.850;cause=77": callstate.NormalClearing,
	} {
		if got := sip.ByeCause([]string{header}); got != want {
			t.Errorf("%q: cause = %s, want %s", header, got, want)
		}
	}
}

func TestQ850_ReadsTheCauseOfAReasonHeader(t *testing.T) {
	t.Parallel()
	for cause, want := range map[callstate.Cause]int{
		callstate.NormalClearing: 16, callstate.OriginatorCancel: 16, callstate.MaxDuration: 16, callstate.SilenceTimeout: 16, callstate.MediaTimeout: 102, callstate.AgentError: 41,
		callstate.NoAnswer: 19, callstate.IncompatibleDest: 88, callstate.Unspecified: 31, callstate.RecoveryOnTimerExpire: 102, callstate.NormalTemporaryFailure: 41,
	} {
		if got, found := sip.Q850([]string{sip.ReasonHeader(cause)}); !found {
			t.Errorf("Q850: found = false, want true; cause = %s; reason.Header(cause) = %s", cause, sip.ReasonHeader(cause))
		} else if got != want {
			t.Errorf("Q850: got = %v, want %v; cause = %s; reason.Header(cause) = %s", got, want, cause, sip.ReasonHeader(cause))
		}
	}
}

func TestStatusOf_ReturnsTheStatusOfEachCause(t *testing.T) {
	t.Parallel()
	for cause, want := range map[callstate.Cause]int{
		callstate.UserBusy: 486, callstate.UnallocatedNumber: 404, callstate.CallRejected: 403, callstate.SwitchCongestion: 503, callstate.NoAnswer: 480, callstate.IncompatibleDest: 488,
		callstate.NumberChanged: 410, callstate.InvalidNumberFormat: 484,
	} {
		if got, text := sip.StatusOf(cause); got != want {
			t.Errorf("Status: got = %v, want %v; cause = %s", got, want, cause)
		} else if text == "" {
			t.Errorf("Status: text is empty, want a value; cause = %s", cause)
		}
	}
}

func FuzzReasonHeader(f *testing.F) {
	for _, seed := range []string{"Q.850;cause=16;text=\"a,b\"", "SIP;cause=200, Q.850 ;cause=17", "\"", `Q.850;text="\";cause=3`, ";;;,,,", ""} {
		f.Add(seed, 480)
	}
	f.Fuzz(func(t *testing.T, header string, status int) {
		number, found := sip.Q850([]string{header})
		if found != (number >= 1 && number <= 127) {
			t.Errorf("Q850(%q) = %d, %v", header, number, found)
		}
		final := sip.Final{Status: status, Reasons: []string{header}}
		for _, cause := range []callstate.Cause{sip.ByeCause([]string{header}), final.Cause()} {
			if cause == "" {
				t.Errorf("%q, %d: cause is empty, want a value", header, status)
			} else if strings.ContainsAny(sip.ReasonHeader(cause), "\r\n") {
				t.Errorf("%q, %d: reason.Header(cause) = %q, want it without \"\\r\\n\"", header, status, sip.ReasonHeader(cause))
			}
		}
	})
}

func TestFinal_AllowsASecondTrunkOnlyForFaultsOfTheFirst(t *testing.T) {
	t.Parallel()
	for status := 300; status < 700; status++ {
		want := slices.Contains([]int{401, 403, 407, 502, 503}, status)
		if got := (sip.Final{Status: status}).AllowsOtherTrunk(); got != want {
			t.Errorf("AllowsOtherTrunk of status %d = %v", status, got)
		}
		if (sip.Final{Status: status, Rang: true}).AllowsOtherTrunk() {
			t.Errorf("AllowsOtherTrunk of status %d after ringing = true, want false", status)
		}
	}
	for number, want := range map[int]bool{1: false, 16: true, 17: false, 19: false, 21: false, 31: true, 34: true, 38: true, 41: true, 42: true, 102: false} {
		final := sip.Final{Status: 503, Reasons: []string{fmt.Sprintf("Q.850;cause=%d", number)}}
		if got := final.AllowsOtherTrunk(); got != want {
			t.Errorf("AllowsOtherTrunk of 503 with Q.850 %d = %v", number, got)
		}
	}
	for _, status := range []int{401, 407} {
		final := sip.Final{Status: status, Reasons: []string{"Q.850;cause=21"}}
		if !final.AllowsOtherTrunk() {
			t.Errorf("%d with a Reason header: elsewhere = false, want true", status)
		}
		if final.Rang = true; final.AllowsOtherTrunk() {
			t.Errorf("%d after ringing: elsewhere = true, want false", status)
		}
	}
	if (sip.Final{}).AllowsOtherTrunk() {
		t.Error("AllowsOtherTrunk without a response = true, want false")
	}
}
