package dial

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestWriteGroups_WaitingWritesFormOneGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs [][]int
		goOn := make(chan struct{})
		g := writeGroups[int]{writeItems: func(_ context.Context, items []int) []error {
			slices.Sort(items)
			runs = append(runs, items)
			<-goOn
			results := make([]error, len(items))
			for i, item := range items {
				results[i] = errors.New(strconv.Itoa(item))
			}
			return results
		}}
		var all sync.WaitGroup
		add := func(item int) {
			all.Go(func() {
				if got, want := g.write(item).Error(), strconv.Itoa(item); got != want {
					t.Errorf("result of member %d = %s, want %s", item, got, want)
				}
			})
			synctest.Wait()
		}
		for item := range 4 {
			add(item)
		}
		close(goOn)
		all.Wait()
		add(4)
		all.Wait()
		if diff := cmp.Diff([][]int{{0}, {1, 2, 3}, {4}}, runs); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
	})
}

func TestWriteGroups_SecondGroupStartsIfManyWritesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn, running := make(chan struct{}), make(chan struct{}, 10)
		g := writeGroups[int]{writeItems: func(_ context.Context, items []int) []error {
			running <- struct{}{}
			<-goOn
			return make([]error, len(items))
		}}
		var all sync.WaitGroup
		for item := range 2 + membersPerGroup {
			all.Go(func() { _ = g.write(item) })
			synctest.Wait()
		}
		if got := len(running); got != 2 {
			t.Errorf("running groups = %d, want 2", got)
		}
		close(goOn)
		all.Wait()
	})
}
