package receivers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestExamples_HoldTheVectorsAndRefuseHalfASecret(t *testing.T) {
	t.Parallel()
	for _, language := range Languages() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			example, err := Prepare(t.Context(), language, ".", t.TempDir())
			if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if example.Check != nil {
				if err := succeed(example.Command(t.Context(), example.Check)); err != nil {
					t.Error(err)
				}
			}
			err = succeed(example.Command(t.Context(), example.Receive, "WEBHOOK_SECRET=c2VjcmV0"))
			if err == nil {
				t.Fatal("the receiver started with half a secret, want a refusal")
			}
			if want := "whsec_ included"; !strings.Contains(err.Error(), want) {
				t.Errorf("refusal = %v, want it to contain %q", err, want)
			}
		})
	}
}
