package webhook

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

func TestVerify_AcceptsOnlyValidTestVectors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Secret, Header, Body string
		Now                        int64
		Valid                      bool
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("vectors.json is empty")
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if err := Verify(v.Secret, v.Header, []byte(v.Body), time.Unix(v.Now, 0)); (err == nil) != v.Valid {
				t.Errorf("Verify = %v, want valid %v", err, v.Valid)
			}
		})
	}
}
