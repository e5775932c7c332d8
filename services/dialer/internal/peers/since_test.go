package peers

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSince_AnswerExpires2SecondsAfterTheDataWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := time.Now()
		<-time.After(500 * time.Millisecond)
		answer := Answer{checkedAt: time.Now()}.Since(read)
		<-time.After(validity - 500*time.Millisecond - time.Nanosecond)
		if !answer.IsValid() {
			t.Error("Good before 2 s after the read = false, want true")
		}
		<-time.After(time.Nanosecond)
		if answer.IsValid() {
			t.Error("Good 2 s after the read = true, want false")
		}
		later := Answer{checkedAt: read}.Since(time.Now())
		if later.IsValid() {
			t.Error("Good after Since with a later time = true, want false")
		}
	})
}
