package money_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
)

func TestParse_ReadsExactDecimals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text  string
		want  money.Micro
		shown string
	}{
		{"12.5", 12_500_000, "12.5"},
		{"-0.000001", -1, "-0.000001"},
		{"0", 0, "0"},
		{"-0", 0, "0"},
		{"0.50", 500_000, "0.5"},
		{"007", 7_000_000, "7"},
		{"10", 10_000_000, "10"},
		{"100.100000", 100_100_000, "100.1"},
		{"9223372036854.775807", math.MaxInt64, "9223372036854.775807"},
		{"-9223372036854.775808", math.MinInt64, "-9223372036854.775808"},
	}
	for _, tt := range tests {
		got, err := money.Parse(tt.text)
		if err != nil {
			t.Errorf("Parse: %v", err)
		} else if got != tt.want {
			t.Errorf("got = %v, want %v", got, tt.want)
		}
		if got.String() != tt.shown {
			t.Errorf("Parse(%q).String() = %q, want %q", tt.text, got, tt.shown)
		}
	}
}

func TestParse_RejectsInvalidAmounts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "1 ", " 1", "+1", "1e3", "1E3", ".5", "5.", "-", "-.5", "1.2.3", "1,5", "0x10", "NaN", "Inf", "--1",
		"1.0000000", "0.0000001", "9223372036854.775808", "-9223372036854.775809", "99999999999999999999", "١", "1_000",
	} {
		if got, err := money.Parse(text); !errors.Is(err, money.ErrAmount) {
			t.Errorf("Parse(%q) = %d, %v, want ErrAmount", text, got, err)
		}
	}
}

func TestMicro_TextAndJSONFormsDecodeToTheSameAmount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := money.Micro(rapid.Int64().Draw(t, "amount"))
		if got, err := money.Parse(want.String()); err != nil {
			t.Fatalf("Parse: %v", err)
		} else if got != want {
			t.Fatalf("Parse: got = %v, want %v", got, want)
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("json.Marshal: %v", err)
		}
		if data[0] == '"' {
			t.Fatal(`data[0] = '"', want another value`)
		}
		var got money.Micro
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		} else if got != want {
			t.Fatalf("got = %v, want %v", got, want)
		}
	})
}

func TestUnmarshalJSON_AcceptsNumbersAndStrings(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]money.Micro{`0.05`: 50_000, `"0.05"`: 50_000, `-3`: -3_000_000, `null`: 42} {
		got := money.Micro(42)
		if err := json.Unmarshal([]byte(data), &got); err != nil {
			t.Errorf("json.Unmarshal: %v", err)
		} else if got != want {
			t.Errorf("got = %v, want %v", got, want)
		}
	}
	for _, data := range []string{`1e3`, `"1e3"`, `true`, `{}`, `[]`, `""`, `"\u0031"`, `0.0000001`} {
		var got money.Micro
		if err := json.Unmarshal([]byte(data), &got); err == nil {
			t.Errorf("Unmarshal(%s) = %d, want an error", data, got)
		}
	}
}

func TestPrice_RoundsUpToIncrementAndMicroCredit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		perMinute money.Micro
		seconds   int32
		increment int32
		want      money.Micro
	}{
		{"ten minutes at the default rate are half a credit", 50_000, 600, 1, 500_000},
		{"one second at the default rate is rounded up to a whole micro-credit", 50_000, 1, 1, 834},
		{"six seconds need no rounding", 50_000, 6, 1, 5_000},
		{"seven seconds are rounded up to the next micro-credit", 50_000, 7, 1, 5_834},
		{"zero seconds cost nothing", 50_000, 0, 60, 0},
		{"negative seconds cost nothing", 50_000, -5, 60, 0},
		{"a rate of zero costs nothing", 0, 600, 1, 0},
		{"a started minute costs a whole minute", 50_000, 1, 60, 50_000},
		{"a full minute costs one minute", 50_000, 60, 60, 50_000},
		{"61 seconds cost two minutes", 50_000, 61, 60, 100_000},
		{"13 seconds are rounded up to 18 seconds", 60_000, 13, 6, 18_000},
		{"an increment below one counts as one second", 60_000, 2, 0, 2_000},
		{"the smallest rate still costs one micro-credit", 1, 1, 1, 1},
		{
			"a charge above the largest amount becomes the largest amount", math.MaxInt64, math.MaxInt32, math.MaxInt32,
			math.MaxInt64,
		},
	}
	for _, tt := range tests {
		if got := money.Price(tt.perMinute, tt.seconds, tt.increment); got != tt.want {
			t.Errorf("%s: Price(%d, %d, %d) = %d, want %d", tt.name, tt.perMinute, tt.seconds, tt.increment, got, tt.want)
		}
	}
}

func TestPrice_EqualsExactArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(0, math.MaxInt64).Draw(t, "rate")
		seconds := rapid.Int32Range(0, math.MaxInt32).Draw(t, "seconds")
		increment := rapid.Int32Range(1, math.MaxInt32).Draw(t, "increment")

		units := (int64(seconds) + int64(increment) - 1) / int64(increment)
		want := new(big.Int).Mul(big.NewInt(rate), big.NewInt(units*int64(increment)))
		want.Add(want, big.NewInt(59)).Div(want, big.NewInt(60))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := money.Price(money.Micro(rate), seconds, increment); int64(got) != want.Int64() {
			t.Fatalf("Price = %d, want %d", got, want)
		}
	})
}
