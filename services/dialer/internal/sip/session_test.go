package sip_test

import (
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/sip"
)

func TestParseSessionExpires_ReadsValidAndRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		value string
		want  sip.Expires
		ok    bool
	}{
		{value: "1800", want: sip.Expires{After: 1800 * time.Second}, ok: true},
		{value: " 90 ; refresher = UAS ", want: sip.Expires{After: 90 * time.Second, Refresher: sip.UAS}, ok: true},
		{value: "8;a=b;refresher=uac;c", want: sip.Expires{After: 8 * time.Second, Refresher: sip.UAC}, ok: true},
		{value: "90;refresher=me", want: sip.Expires{After: 90 * time.Second}, ok: true},
		{value: "4294967295", want: sip.Expires{After: 24 * time.Hour}, ok: true},
		{value: "0", want: sip.Expires{}, ok: false},
		{value: "-5", want: sip.Expires{}, ok: false},
		{value: "99999999999999999999", want: sip.Expires{}, ok: false},
		{value: "", want: sip.Expires{}, ok: false},
	}
	for _, tt := range tests {
		if got, ok := sip.ParseSessionExpires(tt.value); got != tt.want {
			t.Errorf("%q: got = %v, want %v", tt.value, got, tt.want)
		} else if ok != tt.ok {
			t.Errorf("%q: ok = %v, want %v", tt.value, ok, tt.ok)
		}
	}
}

func TestSessionExpires_ReturnsTheTimesOfRefreshAndHangup(t *testing.T) {
	t.Parallel()
	tests := []struct {
		after, refresh, lost time.Duration
	}{
		{after: 1800 * time.Second, refresh: 900 * time.Second, lost: 1768 * time.Second},
		{after: 90 * time.Second, refresh: 45 * time.Second, lost: 60 * time.Second},
		{after: 8 * time.Second, refresh: 4 * time.Second, lost: 8*time.Second - 8*time.Second/3},
		{after: time.Second, refresh: time.Second, lost: time.Second - time.Second/3},
	}
	for _, tt := range tests {
		e := sip.Expires{After: tt.after}
		if got := e.RefreshTime(); got != tt.refresh {
			t.Errorf("%s: e.Refresh() = %v, want %v", tt.after, got, tt.refresh)
		} else if got := e.HangupTime(); got != tt.lost {
			t.Errorf("%s: e.Lost() = %v, want %v", tt.after, got, tt.lost)
		}
	}
}

func TestSessionExpires_TooShortIntervalIsNotAccepted(t *testing.T) {
	t.Parallel()
	const least = 90 * time.Second
	if _, small := (sip.Expires{After: 10 * time.Second}).Accept(least); !small {
		t.Error("Accept of 10 s with a minimum of 90 s: tooSmall = false, want true")
	}
	if got, small := (sip.Expires{}).Accept(least); small {
		t.Error("nothing was asked for: small = true, want false")
	} else if got != (sip.Expires{}) {
		t.Errorf("nothing was asked for: got = %v, want %v", got, sip.Expires{})
	}
	if got, _ := (sip.Expires{After: least}).Accept(least); got.String() != "90;refresher=uac" {
		t.Errorf("answer = %s", got)
	}
	if got, _ := (sip.Expires{After: 2 * least, Refresher: sip.UAS}).Accept(least); got.String() != "180;refresher=uas" {
		t.Errorf("answer = %s", got)
	}
}

func FuzzParseSessionExpires(f *testing.F) {
	for _, seed := range []string{"1800;refresher=uac", "90", ";;", "18446744073709551616", "-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		e, ok := sip.ParseSessionExpires(value)
		switch {
		case ok != (e.After > 0):
			t.Fatalf("ok = %v, want %v", ok, (e.After > 0))
		case e.After > 24*time.Hour:
			t.Fatalf("e.After = %v, want at most %v", e.After, 24*time.Hour)
		case ok && e.RefreshTime() < time.Second:
			t.Fatalf("e.Refresh() = %v, want at least %v", e.RefreshTime(), time.Second)
		case ok && e.HangupTime() <= 0:
			t.Fatalf("e.Lost() = %v, want more than 0", e.HangupTime())
		case ok && e.HangupTime() >= e.After:
			t.Fatalf("e.Lost() = %v, want less than %v", e.HangupTime(), e.After)
		}
		if again, same := sip.ParseSessionExpires(e.String()); ok && (!same || again != e) {
			t.Fatalf("ParseSessionExpires(%q) of the written value = %+v", value, again)
		}
	})
}

func TestTimer_NextActionIsRefreshOrHangup(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var timer sip.Timer
	if wait, _ := timer.Next(now); wait != sip.Never {
		t.Errorf("Next: wait = %v, want %v", wait, sip.Never)
	} else if timer.Lengthen("120") {
		t.Error(`Next: timer.Lengthen("120") = true, want false`)
	}
	timer.RequestInterval(90 * time.Second)
	switch {
	case timer.Lengthen("60"):
		t.Error(`timer.Lengthen("60") = true, want false`)
	case !timer.Lengthen("120"):
		t.Error(`timer.Lengthen("120") = false, want true`)
	case timer.RequestedInterval().After != 120*time.Second:
		t.Errorf("timer.Wanted().After = %v, want %v", timer.RequestedInterval().After, 120*time.Second)
	}
	timer.StartFromHeader("120", now)
	if wait, mine := timer.Next(now); wait != time.Minute {
		t.Errorf("Next: wait = %v, want %v", wait, time.Minute)
	} else if !mine {
		t.Error("Next: mine = false, want true")
	}
	timer.StartRefresh()
	if wait, _ := timer.Next(now); wait != sip.Never {
		t.Errorf("Next during a refresh = %s, want Never", wait)
	}
	if !timer.RetryRefresh(3*time.Second, now) {
		t.Error("Failed = false, want true")
	}
	if wait, mine := timer.Next(now); wait != 3*time.Second {
		t.Errorf("Next: wait = %v, want %v", wait, 3*time.Second)
	} else if !mine {
		t.Error("Next: mine = false, want true")
	}
	if timer.RetryRefresh(3*time.Second, now.Add(90*time.Second)) {
		t.Error("Failed of an expired session = true, want false")
	}
	timer.StartFromHeader("120;refresher=uas", now)
	if wait, mine := timer.Next(now); wait != 88*time.Second {
		t.Errorf("Next: wait = %v, want %v", wait, 88*time.Second)
	} else if mine {
		t.Error("Next: mine = true, want false")
	}
	timer.StartFromHeader("", now)
	if wait, _ := timer.Next(now); wait != sip.Never {
		t.Errorf("Next without a timer = %s, want Never", wait)
	}
}
