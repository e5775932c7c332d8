package store

import "testing"

func TestSettlementFloor_RisesOnlyAfterEarlierTransactionsEnded(t *testing.T) {
	t.Parallel()
	type read struct {
		first, last, xmin int64
		takenBy           int64 // the argument of planIncrease if recordRead returns a candidate
	}
	tests := []struct {
		name  string
		reads []read
		want  int64
	}{
		{
			name:  "no read has followed the candidate",
			reads: []read{{first: 1, last: 900, xmin: 100}, {xmin: 100, takenBy: 105}},
			want:  0,
		},
		{
			name:  "a transaction that ran before the candidate has not ended",
			reads: []read{{first: 1, last: 900, xmin: 100}, {xmin: 100, takenBy: 105}, {xmin: 105}},
			want:  0,
		},
		{
			name:  "all transactions that ran before the candidate have ended",
			reads: []read{{first: 1, last: 900, xmin: 100}, {xmin: 100, takenBy: 105}, {xmin: 106}},
			want:  901,
		},
		{
			name:  "a lower id was committed after the candidate",
			reads: []read{{first: 1, last: 900, xmin: 100}, {xmin: 100, takenBy: 105}, {first: 7, last: 7, xmin: 106}},
			want:  0,
		},
		{
			name: "a sweep finds an id below the floor",
			reads: []read{
				{first: 1, last: 900, xmin: 100}, {xmin: 100, takenBy: 105}, {xmin: 106}, {first: 40, last: 60, xmin: 107},
			},
			want: 40,
		},
		{name: "the increase is below floorStep",
			reads: []read{{first: 1, last: 9, xmin: 100}, {xmin: 101}, {xmin: 102}}, want: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var f settlementFloor
			for _, r := range test.reads {
				if candidate := f.recordRead(r.first, r.last, r.xmin); candidate > 0 {
					f.planIncrease(candidate, r.takenBy)
				}
			}
			if got := f.lowest(); got != test.want {
				t.Errorf("floor = %d, want %d", got, test.want)
			}
		})
	}
}
