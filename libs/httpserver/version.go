package httpserver

import (
	"net/http"
	"strconv"
	"strings"

	"ringfence.dev/libs/apierr"
)

// SetETag sets the header ETag of a response to the version of the object in its body.
func SetETag(w http.ResponseWriter, version int64) { w.Header().Set("ETag", etagOf(version)) }

func etagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// CheckIfMatch returns 412 precondition_failed if the request has the header If-Match and the
// header does not name the version of the stored object. Call it while the object is locked.
// Without the header every version is accepted. A weak tag matches no version (RFC 9110 section
// 13.1.1).
func CheckIfMatch(r *http.Request, version int64) error { return CheckIfMatchTag(r, etagOf(version)) }

// CheckIfMatchTag does the same as CheckIfMatch for an object with the given ETag, including its
// quotation marks.
func CheckIfMatchTag(r *http.Request, etag string) error {
	named := r.Header.Values("If-Match")
	if len(named) == 0 {
		return nil
	}
	for _, list := range named {
		for tag := range strings.SplitSeq(list, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || tag == etag {
				return nil
			}
		}
	}
	return apierr.New(http.StatusPreconditionFailed, "precondition_failed",
		"It was changed in the meantime: its ETag is now %s. Read it again, then send the change with the new ETag.",
		etag)
}
