package phone_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/phone"
)

func TestCallingCode_FirstFourCharactersAreEnough(t *testing.T) {
	t.Parallel()
	for number, want := range map[phone.Number]string{
		"+14155550100": "1", "+141": "1", "+442079460000": "44", "+442": "44", "+383491234567": "383", "+383": "383",
		"+2101234567": "", "+99": "", "+": "", "": "", "anon": "", "+ab": "",
	} {
		if got := number.CallingCode(); got != want {
			t.Errorf("CallingCode(%s) = %q, want %q", number, got, want)
		}
	}
}

func TestForbidden_RefusesUnassignedCountryCodesOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		number phone.Number
		want   string
	}{
		{name: "reserved code", number: "+999123456789", want: phone.Unassigned},
		{name: "reserved code, shortest number", number: "+9991234", want: phone.Unassigned},
		{name: "spare code", number: "+2101234567", want: phone.Unassigned},
		{name: "former code of East Germany and Czechoslovakia", number: "+42912345678", want: phone.Unassigned},
		{name: "assigned code, impossible number", number: "+9107061479", want: ""},
		{name: "assigned code of one digit", number: "+1234567", want: ""},
		{name: "assigned code of two digits", number: "+447700900123", want: ""},
		{name: "assigned code of three digits", number: "+383491234567", want: ""},
		{name: "assigned to the Vatican and not in use", number: "+3791234567", want: ""},
		{name: "assigned to Kazakhstan and not in use", number: "+9977011234567", want: ""},
		{name: "international freephone", number: "+80012345678", want: ""},
		{name: "satellite", number: "+870773111111", want: "satellite"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.number.Forbidden(); got != tt.want {
				t.Errorf("Forbidden(%s) = %q, want %q", tt.number, got, tt.want)
			}
		})
	}
}

// unassignedCodes contains the unassigned codes in the ITU's list of country codes (E.164). An
// update of the metadata can change this list.
const unassignedCodes = "210 214 215 217 219 259 280 281 282 283 284 285 286 287 288 289 292 293 294 295 296 " +
	"384 388 422 424 425 426 427 428 429 671 684 693 694 695 696 697 698 699 " +
	"801 802 803 804 805 806 807 809 830 831 832 833 834 835 836 837 838 839 851 854 857 858 859 " +
	"871 872 873 874 875 876 877 879 884 885 887 889 890 891 892 893 894 895 896 897 898 899 " +
	"969 978 990 991 999"

func TestForbidden_RefusesEveryUnassignedCountryCode(t *testing.T) {
	t.Parallel()
	var unassigned []string
	for code := 100; code < 1000; code++ {
		if phone.Number(fmt.Sprintf("+%d5551234", code)).Forbidden() == phone.Unassigned {
			unassigned = append(unassigned, strconv.Itoa(code))
		}
	}
	if diff := cmp.Diff(strings.Fields(unassignedCodes), unassigned); diff != "" {
		t.Errorf("unassigned three-digit prefixes (-want +got):\n%s", diff)
	}
}
