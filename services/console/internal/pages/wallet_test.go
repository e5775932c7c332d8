package pages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/proto/openapi"
)

const usageHeader = "date,direction,agent_id,agent_name,calling_code,calls,answered,talk_seconds,credits\r\n"

func TestReadUsage_SumsTheSpendingByDayAgentAndCallingCode(t *testing.T) {
	t.Parallel()
	const ada, bob = "019e91ca-1300-7c11-8f0e-3a5d5d1c2b11", "019e91ca-1300-7c11-8f0e-3a5d5d1c2b12"
	got, err := readUsage(strings.NewReader(usageHeader +
		"2026-06-02,outbound," + ada + ",Ada,1,2,1,30,0.500000\r\n" +
		"2026-06-01,outbound," + ada + ",\"'=Ada\",44,1,1,30,0.250000\r\n" +
		"2026-06-02,inbound," + bob + ",,1,3,3,90,1.000000\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := spending{
		Credits: 1.75, Calls: 6,
		Days:   []share{{"2026-06-01", 1, 0.25}, {"2026-06-02", 5, 1.5}},
		Agents: []share{{bob[:8], 3, 1}, {"'=Ada", 3, 0.75}},
		Codes:  []share{{"+1", 5, 1.5}, {"+44", 1, 0.25}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spending differs (-want +got):\n%s", diff)
	}
}

func TestReadUsage_RefusesIncompleteFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", usageHeader + "2026-06-02,outbound", usageHeader + "a,b,c,d,e,f,g,h,i\r\n",
		"<html>"} {
		if got, err := readUsage(strings.NewReader(file)); err == nil {
			t.Errorf("readUsage(%q) = %v, want an error", file, got)
		}
	}
}

func TestSummarize_CountsEachCallInOneBar(t *testing.T) {
	t.Parallel()
	got := summarize(openapi.CallStatistics{
		Total: openapi.CallStatisticsTotal{
			Calls:       6,
			Answered:    4,
			TalkSeconds: 40,
			Statuses: map[string]int64{
				"completed": 3,
				"failed":    1,
				"busy":      2,
			},
			Outcomes: map[string]int64{"opted_out": 1, "interested": 2},
		},
		Data: []openapi.CallStatisticsInterval{
			{Calls: 6, Answered: 4, Statuses: map[string]int64{"completed": 3, "failed": 1, "busy": 2}},
		},
	})
	want := daySummary{Calls: 6, Answered: 4, OptOuts: 1, Failed: 1, Talk: 40,
		Hours:    []hourSummary{{Answered: 3, Failed: 1, Missed: 2}},
		Outcomes: []outcomeCount{{"interested", 2}, {"opted_out", 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary differs (-want +got):\n%s", diff)
	}
}
