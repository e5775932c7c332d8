package trunks

// CheckResult is the result of one step of a check.
type CheckResult string

// These are the values of CheckResult. A skipped step did not test the trunk.
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
	// Remedy is what the operator can do. It is empty unless the step failed.
	Remedy string
}
