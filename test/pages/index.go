package pages

import (
	"path"
	"strings"
)

// Names of the tests in the index: the folder of the package and the test.
const (
	// Demo runs commands against the demo workspace of a local stack.
	Demo = "test/e2e/contract TestPages_CommandsRun"
	// Queries executes SQL in the database of a local stack.
	Queries = "test/e2e/contract TestPages_QueriesRun"
	// Operator runs commands against a local stack with a SIP trunk.
	Operator = "test/e2e TestSIP_PagesRun"
	// FirstCall runs the first call on the services of the charts.
	FirstCall = "deploy/compose TestCharts_ServicesStartAndPlaceACall"
	// Deploy runs commands with programs instead of docker, kubectl, curl and ringfence that write
	// down their arguments, and compares the arguments with the charts and docker-compose.yml.
	Deploy = "deploy/compose TestPages_CommandsMatchTheCharts"
	// PromQL parses queries.
	PromQL = "deploy/prometheus TestRunbooks_QueriesParse"
	// Asterisk runs commands on a local stack with Asterisk.
	Asterisk = "test/asterisk TestAsteriskPage_CommandsRun"
	// Parsed checks that make targets, packages and tests exist.
	Parsed = "test/pages TestParsed_TargetsPackagesAndTestsExist"
)

// entry assigns a test to blocks. The first entry that matches a block applies.
type entry struct {
	// Page is a pattern as in path.Match.
	Page string
	// Contains is a text in the block. If empty, the entry matches each block of the page.
	Contains string
	// Language is the language of the block. If empty, it is sh.
	Language string
	Test     string
}

var index = []entry{
	{Page: "README.md", Contains: "SIP_ADVERTISED_ADDR=", Test: Parsed},
	{Page: "README.md", Contains: "trunks add --file -", Test: Asterisk},
	{Page: "README.md", Test: Demo},
	{Page: "CONTRIBUTING.md", Test: Parsed},

	{Page: "docs/quick-start.md", Test: Demo},
	{Page: "docs/place-a-call.md", Test: Demo},
	{Page: "docs/webhooks.md", Test: Demo},
	{Page: "docs/errors-and-retries.md", Test: Demo},
	{Page: "docs/test-numbers.md", Test: Demo},
	{Page: "docs/compliance.md", Test: Demo},
	{Page: "docs/billing.md", Test: Demo},
	{Page: "docs/ai-agents.md", Test: Demo},
	{Page: "docs/media-stream-agents.md", Test: Demo},
	{Page: "docs/recordings.md", Test: Demo},
	{Page: "docs/operate.md", Test: Demo},
	{Page: "docs/kafka.md", Test: Demo},
	{Page: "cmd/simcarrier/README.md", Test: Demo},

	{Page: "docs/deploy/compose.md", Contains: "call-requests", Test: FirstCall},
	{Page: "docs/deploy/*.md", Test: Deploy},
	{Page: "docs/runbooks/README.md", Test: Deploy},

	{Page: "docs/sip-trunks/asterisk.md", Contains: " make run", Test: Parsed},
	{Page: "docs/sip-trunks/asterisk.md", Test: Asterisk},
	{Page: "docs/sip-trunks/*.md", Test: Operator},
	{Page: "docs/runbooks/*.md", Test: Operator},
	{Page: "docs/runbooks/*.md", Language: "promql", Test: PromQL},
	{Page: "docs/runbooks/*.md", Language: "sql", Test: Queries},

	{Page: "docs/test.md", Test: Parsed},
	{Page: "libs/*/README.md", Test: Parsed},
	{Page: "services/*/README.md", Test: Parsed},
	{Page: "test/*/README.md", Test: Parsed},
}

func (e entry) matches(b Block) bool {
	language := e.Language
	if language == "" {
		language = "sh"
	}
	matched, err := path.Match(e.Page, b.Page)
	return err == nil && matched && b.Language == language && strings.Contains(b.Text, e.Contains)
}

func find(b Block) (entry, bool) {
	for _, e := range index {
		if e.matches(b) {
			return e, true
		}
	}
	return entry{}, false
}
