package trunks

// CheckResult is the result of one step of a check.
type CheckResult string

// These are the values of CheckResult. A skipped step did not run, because an earlier step failed
// or the step does not apply.
const (
	CheckOK      CheckResult = "ok"
	CheckFailed  CheckResult = "failed"
	CheckSkipped CheckResult = "skipped"
)

// CheckStep is one step of a check of a trunk.
type CheckStep struct {
	Name   string
	Result CheckResult
	// Seen is what the step found at the trunk.
	Seen string
	// Remedy is what the operator can do after a failed step. Otherwise it is empty.
	Remedy string
}
