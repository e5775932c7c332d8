package kit

import (
	"path"
	"strings"
)

// Names of the tests in pageIndex: the folder of the package and the test.
const (
	// DemoTest runs commands against the demo workspace of a local stack.
	DemoTest = "test/e2e/contract TestDocumentation_CommandsForCustomersAndOperatorsSucceed"
	// RecipesTest runs the commands and the code of the first webhook in TypeScript, Python and Go.
	RecipesTest = "test/e2e/contract TestClients_RecipesForTheFirstWebhookWork"
	// OperatorTest runs commands against a local stack with a SIP trunk. Programs that do nothing take
	// the place of kubectl, docker, helm, ssh and the programs of Kafka.
	OperatorTest = "test/e2e TestSIP_CommandsInRunbooksAndTrunkDocsSucceed"
	// FirstCallTest runs the first call on the services of the charts.
	FirstCallTest = "deploy/compose TestCharts_ServicesStartAndPlaceACall"
	// DeployTest runs commands with fake docker, kubectl, curl and ringfence programs. It compares
	// their arguments with the charts and docker-compose.yml.
	DeployTest = "deploy/compose TestDeployDocs_CommandsMatchTheCharts"
	// PromQLTest parses queries.
	PromQLTest = "deploy/prometheus TestRunbooks_QueriesHaveValidSyntax"
	// AsteriskTest runs commands on a local stack with Asterisk.
	AsteriskTest = "test/asterisk TestAsteriskPage_CommandsRun"
	// ParsedTest checks that make targets, packages and tests exist.
	ParsedTest = "test/kit TestParsedBlocks_TargetsAndPackagesAndTestsExist"
)

// fixedTests lists the tests that run a fixed number of blocks. Their entries must have a Count, so
// that the check of pageIndex finds a new block.
var fixedTests = []string{AsteriskTest, FirstCallTest}

// pageEntry assigns a test to blocks. The first entry that matches a block applies.
type pageEntry struct {
	// Page is a pattern as in path.Match.
	Page string
	// Contains is a text in the block. If empty, the entry matches each block of the page.
	Contains string
	// Language is the language of the block. If empty, it is sh.
	Language string
	// Count is the number of blocks that the entry matches. If it is 0, the number is not checked.
	Count int
	Test  string
}

var pageIndex = []pageEntry{
	{Page: "README.md", Contains: "SIP_ADVERTISED_ADDR=", Test: ParsedTest},
	{Page: "README.md", Contains: "trunks add --file -", Count: 1, Test: AsteriskTest},
	{Page: "README.md", Test: DemoTest},
	{Page: "CONTRIBUTING.md", Test: ParsedTest},

	{Page: "docs/quick-start.md", Test: DemoTest},
	{Page: "docs/place-a-call.md", Test: DemoTest},
	{Page: "docs/webhooks.md", Test: RecipesTest},
	{Page: "docs/errors-and-retries.md", Test: DemoTest},
	{Page: "docs/test-numbers.md", Test: DemoTest},
	{Page: "docs/compliance.md", Test: DemoTest},
	{Page: "docs/billing.md", Test: DemoTest},
	{Page: "docs/ai-agents.md", Test: DemoTest},
	{Page: "docs/media-stream-agents.md", Test: DemoTest},
	{Page: "docs/recordings.md", Test: DemoTest},
	{Page: "docs/operate.md", Test: DemoTest},
	{Page: "docs/kafka.md", Test: DemoTest},
	{Page: "cmd/simcarrier/README.md", Test: DemoTest},

	{Page: "docs/deploy/compose.md", Contains: "call-requests", Count: 1, Test: FirstCallTest},
	{Page: "docs/deploy/*.md", Test: DeployTest},
	{Page: "docs/runbooks/README.md", Test: DeployTest},

	{Page: "docs/sip-trunks/*.md", Contains: " make run", Test: ParsedTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "core reload", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "trunks add", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "curl -s", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "'core show channels'\n", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "request hangup", Count: 2, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "pjsip qualify", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/asterisk.md", Contains: "channel originate", Count: 1, Test: AsteriskTest},
	{Page: "docs/sip-trunks/*.md", Test: OperatorTest},
	{Page: "docs/runbooks/*.md", Test: OperatorTest},
	{Page: "docs/runbooks/*.md", Language: "promql", Test: PromQLTest},

	{Page: "docs/test.md", Test: ParsedTest},
	{Page: "services/*/README.md", Test: ParsedTest},
	{Page: "test/*/README.md", Test: ParsedTest},
}

func (e pageEntry) matches(b PageBlock) bool {
	language := e.Language
	if language == "" {
		language = "sh"
	}
	matched, err := path.Match(e.Page, b.Page)
	return err == nil && matched && b.Language == language && strings.Contains(b.Text, e.Contains)
}

func findEntry(b PageBlock) (pageEntry, bool) {
	for _, e := range pageIndex {
		if e.matches(b) {
			return e, true
		}
	}
	return pageEntry{}, false
}
