package reason_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal/reason"
)

// TestCause_Table is contract.md §2, row by row.
func TestCause_Table(t *testing.T) {
	t.Parallel()
	q850 := func(n int) []string { return []string{fmt.Sprintf(`Q.850;cause=%d;text="x"`, n)} }
	tests := []struct {
		name  string
		final reason.Final
		want  call.Cause
	}{
		{"silence", reason.Final{}, call.RecoveryOnTimerExpire},
		{"300 is not followed", reason.Final{Status: 300}, call.NoRouteDestination},
		{"302 is not followed", reason.Final{Status: 302}, call.NoRouteDestination},
		{"400", reason.Final{Status: 400}, call.NormalTemporaryFailure},
		{"401 after the retry", reason.Final{Status: 401}, call.ProviderAuthFailed},
		{"403", reason.Final{Status: 403}, call.CallRejected},
		{"404", reason.Final{Status: 404}, call.UnallocatedNumber},
		{"407 after the retry", reason.Final{Status: 407}, call.ProviderAuthFailed},
		{"408", reason.Final{Status: 408}, call.NoUserResponse},
		{"410", reason.Final{Status: 410}, call.NumberChanged},
		{"415", reason.Final{Status: 415}, call.IncompatibleDest},
		{"416", reason.Final{Status: 416}, call.InvalidNumberFormat},
		{"480 before ringing", reason.Final{Status: 480}, call.SubscriberAbsent},
		{"480 after ringing", reason.Final{Status: 480, Rang: true}, call.NoAnswer},
		{"484", reason.Final{Status: 484}, call.InvalidNumberFormat},
		{"486", reason.Final{Status: 486}, call.UserBusy},
		{"487 that nobody asked for", reason.Final{Status: 487}, call.NormalTemporaryFailure},
		{"488", reason.Final{Status: 488}, call.IncompatibleDest},
		{"500", reason.Final{Status: 500}, call.NormalTemporaryFailure},
		{"501", reason.Final{Status: 501}, call.FacilityRejected},
		{"502", reason.Final{Status: 502}, call.NetworkOutOfOrder},
		{"503", reason.Final{Status: 503}, call.NormalTemporaryFailure},
		{"503 with Retry-After", reason.Final{Status: 503, RetryAfter: true}, call.SwitchCongestion},
		{"504", reason.Final{Status: 504}, call.RecoveryOnTimerExpire},
		{"600", reason.Final{Status: 600}, call.UserBusy},
		{"603", reason.Final{Status: 603}, call.CallRejected},
		{"604", reason.Final{Status: 604}, call.UnallocatedNumber},
		{"606", reason.Final{Status: 606}, call.IncompatibleDest},
		{"607", reason.Final{Status: 607}, call.SpamBlocked},
		{"608", reason.Final{Status: 608}, call.SpamBlocked},
		{"another 6xx", reason.Final{Status: 699}, call.CallRejected},
		{"Q.850 wins", reason.Final{Status: 480, Reasons: q850(19)}, call.NoAnswer},
		{"Q.850 of a rejected call", reason.Final{Status: 500, Reasons: q850(21)}, call.CallRejected},
		{"Q.850 of a dead line", reason.Final{Status: 500, Reasons: q850(27)}, call.DestinationOutOfOrder},
		{"Q.850 without a name in the list", reason.Final{Status: 486, Reasons: q850(34)}, call.UserBusy},
		{"Q.850 normal before an answer says nothing", reason.Final{Status: 486, Reasons: q850(16)}, call.UserBusy},
		{"Q.850 behind another protocol", reason.Final{Status: 480, Reasons: []string{`SIP;cause=486;text="Busy, here; cause=3", q.850 ; cause = 17`}}, call.UserBusy},
		{"Q.850 in a second header", reason.Final{Status: 480, Reasons: []string{"SIP;cause=200", "Q.850;cause=1"}}, call.UnallocatedNumber},
		{"Q.850 inside quotes is text", reason.Final{Status: 480, Reasons: []string{`SIP;text=",Q.850;cause=17"`}}, call.SubscriberAbsent},
		{"Q.850 out of range", reason.Final{Status: 486, Reasons: []string{"Q.850;cause=128", "Q.850;cause=0", "Q.850;cause=-1", "Q.850;cause="}}, call.UserBusy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.final.Cause(); got != tt.want {
				t.Errorf("cause = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestBye_Cause(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]call.Cause{
		"": call.NormalClearing, "Q.850;cause=16": call.NormalClearing, "Q.850;cause=31": call.NormalClearing, "SIP;cause=200": call.NormalClearing,
		"Q.850;cause=38": call.NetworkOutOfOrder, "Q.850;cause=102": call.RecoveryOnTimerExpire, "Q.850;cause=77": call.NormalClearing,
	} {
		if got := reason.Bye([]string{header}); got != want {
			t.Errorf("%q: cause = %s, want %s", header, got, want)
		}
	}
}

// TestHeader_IsReadBack: what we tell a carrier is what it reads.
func TestHeader_IsReadBack(t *testing.T) {
	t.Parallel()
	for cause, want := range map[call.Cause]int{
		call.NormalClearing: 16, call.OriginatorCancel: 16, call.MaxDuration: 16, call.SilenceTimeout: 16, call.MediaTimeout: 102, call.AgentError: 41,
		call.NoAnswer: 19, call.IncompatibleDest: 88, call.Unspecified: 31, call.RecoveryOnTimerExpire: 102, call.NormalTemporaryFailure: 41,
	} {
		if got, told := reason.Q850([]string{reason.Header(cause)}); !told {
			t.Errorf("Q850: found = false, want true; cause = %s; reason.Header(cause) = %s", cause, reason.Header(cause))
		} else if got != want {
			t.Errorf("Q850: got = %v, want %v; cause = %s; reason.Header(cause) = %s", got, want, cause, reason.Header(cause))
		}
	}
}

func TestStatus_OfARefusal(t *testing.T) {
	t.Parallel()
	for cause, want := range map[call.Cause]int{
		call.UserBusy: 486, call.UnallocatedNumber: 404, call.CallRejected: 403, call.SwitchCongestion: 503, call.NoAnswer: 480, call.IncompatibleDest: 488,
		call.NumberChanged: 410, call.InvalidNumberFormat: 484,
	} {
		if got, text := reason.Status(cause); got != want {
			t.Errorf("Status: got = %v, want %v; cause = %s", got, want, cause)
		} else if text == "" {
			t.Errorf("Status: text is empty, want a value; cause = %s", cause)
		}
	}
}

func FuzzReason(f *testing.F) {
	for _, seed := range []string{"Q.850;cause=16;text=\"a,b\"", "SIP;cause=200, Q.850 ;cause=17", "\"", `Q.850;text="\";cause=3`, ";;;,,,", ""} {
		f.Add(seed, 480)
	}
	f.Fuzz(func(t *testing.T, header string, status int) {
		number, told := reason.Q850([]string{header})
		if told != (number >= 1 && number <= 127) {
			t.Errorf("%q: %d, %v", header, number, told)
		}
		for _, cause := range []call.Cause{reason.Bye([]string{header}), reason.Final{Status: status, Reasons: []string{header}}.Cause()} {
			if cause == "" {
				t.Errorf("%q, %d: cause is empty, want a value", header, status)
			} else if strings.ContainsAny(reason.Header(cause), "\r\n") {
				t.Errorf("%q, %d: reason.Header(cause) = %q, want it without \"\\r\\n\"", header, status, reason.Header(cause))
			}
		}
	})
}

// TestElsewhere_OnlyWhatIsTheTrunksOwn: what may ring, and what is said of the number or the person, is for all trunks.
func TestElsewhere_OnlyWhatIsTheTrunksOwn(t *testing.T) {
	t.Parallel()
	for status := 300; status < 700; status++ {
		want := slices.Contains([]int{401, 403, 407, 502, 503}, status)
		if got := (reason.Final{Status: status}).Elsewhere(); got != want {
			t.Errorf("%d: %v", status, got)
		}
		if (reason.Final{Status: status, Rang: true}).Elsewhere() {
			t.Errorf("%d after ringing", status)
		}
	}
	for number, want := range map[int]bool{1: false, 16: true, 17: false, 19: false, 21: false, 31: true, 34: true, 38: true, 41: true, 42: true, 102: false} {
		if got := (reason.Final{Status: 503, Reasons: []string{fmt.Sprintf("Q.850;cause=%d", number)}}).Elsewhere(); got != want {
			t.Errorf("503 with Q.850 %d: %v", number, got)
		}
	}
	for _, status := range []int{401, 407} {
		final := reason.Final{Status: status, Reasons: []string{"Q.850;cause=21"}}
		if !final.Elsewhere() {
			t.Errorf("%d with a Reason header: elsewhere = false, want true", status)
		}
		if final.Rang = true; final.Elsewhere() {
			t.Errorf("%d after ringing: elsewhere = true, want false", status)
		}
	}
	if (reason.Final{}).Elsewhere() {
		t.Error("silence")
	}
}
