package main

import (
	"strings"
	"testing"

	"ringfence.dev/libs/service"
	"ringfence.dev/services/gateway/internal/apikey"
)

func TestOperators(t *testing.T) {
	t.Parallel()
	pepper, err := apikey.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	good := Config{OperatorTokens: []string{"ada=a-token-with=equals", " bob=another-token-0002", ""}}
	operators, err := good.operators(pepper)
	if err != nil || len(operators) != 2 || operators[0].Name != "ada" || operators[1].Name != "bob" {
		t.Fatalf("operators = %v, %v", operators, err)
	}
	if hash := pepper.Hash("a-token-with=equals"); !hash.Equal(operators[0].Hash) {
		t.Error("the token was cut at its own equals sign")
	}
	_, err = Config{OperatorTokens: []string{"secret-without-a-name", "eve=short"}}.operators(pepper)
	if err == nil || strings.Count(err.Error(), "OPERATOR_TOKENS") != 2 || strings.Contains(err.Error(), "secret-without-a-name") || strings.Contains(err.Error(), "short") {
		t.Errorf("err = %v, want both faults and no token", err)
	}
}

// Two tokens of one name: the second would silently end the first.
func TestOperators_OneNameHasOneToken(t *testing.T) {
	t.Parallel()
	pepper, err := apikey.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Config{OperatorTokens: []string{"ada=the-older-token-0001", "bob=another-token-0002", "ada=the-newer-token-0003"}}.operators(pepper)
	if err == nil || !strings.Contains(err.Error(), "ada stands twice") || strings.Contains(err.Error(), "-token-") {
		t.Errorf("err = %v, want the name and no token", err)
	}
}

func TestConfig_EveryVariableStandsOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range service.Variables[Config]() {
		if seen[v.Name] {
			t.Errorf("%s stands twice", v.Name)
		}
		seen[v.Name] = true
	}
	for _, want := range []string{"HTTP_ADDR", "ADMIN_ADDR", "PRIVATE_ADDR", "POSTGRES_URL", "KAFKA_BROKERS", "SIGNING_KEY", "TRUSTED_PROXIES", "READY_URLS"} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
}
