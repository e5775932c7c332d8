// Package plural says how many there are of something in English, as people read it: 1 row, 2 rows. It knows the things that take an s
// and nothing behind it, so a sentence is built to agree with one and with many.
package plural

import "fmt"

// Of is a number and its things, one of which is called thing.
func Of[N ~int | ~int32 | ~int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
