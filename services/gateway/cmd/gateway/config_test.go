package main

import (
	"strings"
	"testing"

	"ringfence.dev/libs/service"
	"ringfence.dev/services/gateway/internal/secrets"
)

func TestOperators_ParsesTheList(t *testing.T) {
	t.Parallel()
	pepper, err := secrets.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	good := Config{OperatorTokens: []string{"ada=a-token-with=equals", " bob=another-token-0002", ""}}
	operators, err := good.operators(pepper)
	if err != nil {
		t.Fatalf("operators: %v", err)
	}
	if len(operators) != 2 {
		t.Fatalf("operators: length of operators = %v, want 2", len(operators))
	}
	if operators[0].Name != "ada" {
		t.Fatalf("operators[0].Name = %q, want \"ada\"", operators[0].Name)
	}
	if operators[1].Name != "bob" {
		t.Fatalf("operators[1].Name = %q, want \"bob\"", operators[1].Name)
	}
	if hash := pepper.Hash("a-token-with=equals"); !hash.Equal(operators[0].Hash) {
		t.Error("the token was cut at an equals sign inside the token")
	}
	_, err = Config{OperatorTokens: []string{"secret-without-a-name", "eve=short"}}.operators(pepper)
	if err == nil {
		t.Fatalf("err = nil, want an error")
	}
	if strings.Count(err.Error(), "OPERATOR_TOKENS") != 2 {
		t.Errorf("err: strings.Count(err.Error(), \"OPERATOR_TOKENS\") = %v, want 2",
			strings.Count(err.Error(), "OPERATOR_TOKENS"))
	}
	if strings.Contains(err.Error(), "secret-without-a-name") {
		t.Errorf("err.Error() = %q, want it not to contain %q", err.Error(), "secret-without-a-name")
	}
	if strings.Contains(err.Error(), "short") {
		t.Errorf("err.Error() = %q, want it not to contain %q", err.Error(), "short")
	}
}

// If a duplicate name were accepted, the second token would silently replace the first one.
func TestOperators_RefusesADuplicateName(t *testing.T) {
	t.Parallel()
	pepper, err := secrets.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Config{OperatorTokens: []string{"ada=the-older-token-0001", "bob=another-token-0002", "ada=the-newer-token-0003"}}.operators(pepper)
	if err == nil {
		t.Fatalf("err = nil, want an error")
	}
	if !strings.Contains(err.Error(), "ada is listed twice") {
		t.Errorf("err.Error() = %q, want it to contain %q", err.Error(), "ada is listed twice")
	}
	if strings.Contains(err.Error(), "-token-") {
		t.Errorf("err.Error() = %q, want it not to contain %q", err.Error(), "-token-")
	}
}

func TestConfig_EachVariableIsDefinedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range service.Variables[Config]() {
		if seen[v.Name] {
			t.Errorf("%s is defined twice", v.Name)
		}
		seen[v.Name] = true
	}
	for _, want := range []string{"HTTP_ADDR", "ADMIN_ADDR", "PRIVATE_ADDR", "POSTGRES_URL", "KAFKA_BROKERS", "SIGNING_KEY", "TRUSTED_PROXIES", "READY_URLS"} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

// A faulty certificate must be reported together with the other faults, before the gateway opens a
// connection.
func TestCheck_ReportsAFaultyCertificateAndAFaultyPepperTogether(t *testing.T) {
	t.Parallel()
	err := spec().Check(Config{
		TLSCertFile: "missing.crt", TLSKeyFile: "missing.key", APIKeyPepper: "short",
	})
	if err == nil {
		t.Fatal("Check returned no error")
	}
	for _, want := range []string{"TLS_CERT_FILE", "missing.crt", "API_KEY_PEPPER"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to contain %s", err, want)
		}
	}
}

// The audit log could not distinguish an operator with such a name from a person.
func TestOperators_NameWithThePrefixPersonIsRefused(t *testing.T) {
	t.Parallel()
	pepper, err := secrets.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Config{OperatorTokens: []string{"person:0190c2a0=a-token-of-ada-0001"}}.operators(pepper)
	if err == nil || !strings.Contains(err.Error(), "must not begin with person:") {
		t.Errorf("operators = %v, want an error about the prefix person:", err)
	}
}

func TestConsoleConfig_ErrorContainsTheInvalidVariable(t *testing.T) {
	t.Parallel()
	const workspace = "0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"
	tests := []struct {
		name  string
		given ConsoleConfig
		want  string // a part of the error text, or "" if no error is expected
	}{
		{name: "no console", given: ConsoleConfig{}},
		{name: "passkeys", given: ConsoleConfig{URL: "https://console.example.com"}},
		{
			name: "OpenID provider",
			given: ConsoleConfig{URL: "https://console.example.com", Issuer: "https://id.example.com", ClientID: "r",
				GroupRoles: []string{"ops=operator", "cn=a,ou=b=viewer@" + workspace}},
		},
		{name: "URL without a host", given: ConsoleConfig{URL: "console.example.com"}, want: "CONSOLE_URL"},
		{
			name:  "provider without a URL",
			given: ConsoleConfig{Issuer: "https://id.example.com", ClientID: "r"},
			want:  "CONSOLE_URL",
		},
		{
			name:  "provider without a client",
			given: ConsoleConfig{URL: "https://console.example.com", Issuer: "https://id.example.com"}, want: "OIDC_CLIENT_ID",
		},
		{name: "group without a role", given: ConsoleConfig{GroupRoles: []string{"ops"}}, want: `"ops" must be`},
		{name: "role without a workspace", given: ConsoleConfig{GroupRoles: []string{"ops=owner"}}, want: "ops=owner"},
		{
			name:  "operator of one workspace",
			given: ConsoleConfig{GroupRoles: []string{"ops=operator@" + workspace}},
			want:  "ops=operator",
		},
		{
			name:  "workspace without an id",
			given: ConsoleConfig{GroupRoles: []string{"ops=owner@acme"}},
			want:  "ops=owner@acme",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parsed, err := tt.given.parse()
			if tt.want == "" {
				if err != nil {
					t.Fatalf("parse: %v", err)
				}
				if got := parsed.oidc != nil; got != (tt.given.Issuer != "") {
					t.Errorf("has a provider = %t, want %t", got, !got)
				}
				if got := parsed.passkeys != nil; got != (tt.given.URL != "") {
					t.Errorf("has passkeys = %t, want %t", got, !got)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestIsLoopback_IsTrueOnlyForAddressesOfThisMachine(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8082": true, "[::1]:8082": true, ":8082": false, "0.0.0.0:8082": false, "10.0.0.1:8082": false,
	} {
		if got := isLoopback(address); got != want {
			t.Errorf("isLoopback(%q) = %v, want %v", address, got, want)
		}
	}
}
