package summary

import "testing"

// The field reasoning_effort turns off the reasoning of the default model. Other endpoints can
// refuse this field.
func TestSummarise_SetsReasoningEffortOnlyForTheDefaultModel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, model string
		want        any
	}{
		{name: "default model", model: "gpt-6-luna", want: "none"},
		{name: "another model", model: "small", want: nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			endpoint := serve(t, reply{status: 200, text: good})
			s := summariser(endpoint)
			s.cfg.Model = tt.model
			if _, err := s.Summarise(t.Context(), aCall()); err != nil {
				t.Fatalf("Summarise: %v", err)
			}
			asked := endpoint.requests()
			if len(asked) != 1 {
				t.Fatalf("questions = %d, want 1", len(asked))
			}
			if got := asked[0].body["reasoning_effort"]; got != tt.want {
				t.Errorf("reasoning_effort = %v, want %v", got, tt.want)
			}
		})
	}
}
