package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// program matches the beginning of a line that is a command.
var program = regexp.MustCompile(`^(sudo )?(apt-get|curl|docker|export|git|go|helm|kubectl|head|make|outrigger|source|tcld|temporal|bin/\S+) `)

// commandsOf returns the commands in the fenced blocks of a document.
func commandsOf(t *testing.T, document string) (found []step) {
	t.Helper()
	blocks, err := sessions(document)
	require.NoError(t, err)
	for _, block := range blocks {
		if block.language == "console" || slices.ContainsFunc(block.lines, func(line string) bool { return strings.HasPrefix(line, "$ ") }) {
			found = append(found, block.steps()...)
			continue
		}
		if block.language != "" && block.language != "bash" {
			continue
		}
		continued := false
		for i, line := range block.lines {
			switch {
			case continued:
				found[len(found)-1].command += "\n" + line
			case program.MatchString(line + " "):
				found = append(found, step{line: block.line + 1 + i, command: line})
			default:
				continue
			}
			continued = strings.HasSuffix(line, `\`)
		}
	}
	return found
}

// manuals returns the documents whose commands are tested from top to bottom, except the commands that other
// tests cover.
func manuals() []string { return []string{"docs/troubleshooting.md", "docs/temporal.md"} }

// places returns the test of each command that is not in a guide or a manual. If a command has no test, place
// is the reason.
func places() []struct{ commands, place string } {
	return []struct{ commands, place string }{
		{`make (verify|lint|test|precommit|integration)\b`, "part of CI"},
		{`make demo\b`, "TestTheDemoIsALineForEachStep"},
		{`make fleet-demo\b`, "TestTheFleetDemoStopsABadVersionInTheFirstCluster"},
		{`make (kill ROLE=temporal-history-1|stop ROLE=postgres|test-cluster)\b`, "TestTemporalClusterLosesAHistoryHost"},
		{`make (up|down|start|stop|kill|status|build)\b|set -a; source \.run/env|bin/kubectl get nodes`, "TestStackFromUpToDown"},
		{`make run\b`, "TestRunPlaysTheRolesAgainstAnotherCluster"},
		{`make (chaos|soak)\b`, "TestSpecHoldsUnderFaults"},
		{`make fleet-chaos\b`, "not tested: four clusters need minutes; TestFleetFindsAWrongOrder tests its observer"},
		{`make bench-`, "not tested: figures need an idle machine and minutes"},
		{`make e2e-node\b`, "TestSpec7_7_NoRequestFailsOverFiveHotUpgrades"},
		{`make node\b|bin/node/node shell `, "TestTheNodeStaysUpAndRunsPushedImages"},
		{`go test `, "part of CI"},
		{`apt-get `, "not tested: packages of the machine"},
		{`(make compose|docker |export KUBECONFIG=\.run/compose|kubectl --kubeconfig kubeconfig )`, "not tested here: make compose-test needs a container engine"},
		{`outrigger migrate check`, "TestThereAndBack"},
		{`kubectl sidecarset (plan|status|pause)`, "TestARolloutFromTheFirstLookToTheUndo"},
		{`kubectl sidecarset (approve|promote)`, "TestARolloutIsApprovedAndPromoted"},
		{`helm (install|upgrade|uninstall) `, "TestHelmInstallsUpgradesAndUninstalls"},
		{`kubectl (-n kruise-system )?(apply|delete|patch crd|rollout status) `, "TestKubectlInstallsAndUninstallsAsDocumented"},
		{`kubectl (get mutatingwebhookconfiguration outrigger -o|patch mutatingwebhookconfiguration outrigger -p '\{"webhooks": \[\{)`, "TestSpec4_16_MatchConditionsFollowTheSidecarSets"},
		{`kubectl (-n kruise-system patch secret outrigger-webhook-cert|patch mutatingwebhookconfiguration) `, "TestSpec4_14_NoPodIsRejectedWhileCertManagerReplacesCertificates"},
		{`kubectl -n kruise-system port-forward pod/outrigger-temporal-0 `, "TestTheEmbeddedTemporalRollsOut"},
		{`kubectl -n kruise-system port-forward `, "not tested: the pages need a node that runs containers"},
		{`kubectl -n kruise-system create secret generic temporal-api-key`, "TestTemporalIsReachedBySecrets"},
		{`kubectl (label namespace my-network|get pods --all-namespaces) `, "TestSpec4_13_AColdClusterCreatesThePodsThatMakeItsNodesReady"},
		{`kubectl get clusterrolebindings `, "TestRightsNeedNotBeAggregated"},
		{`kubectl get sidecarset edge-proxy `, "TestSpec12_9_AwaitingPermitNamesTheFaultOfTheConnection"},
		{`kubectl --kubeconfig karmada-apiserver.config `, "TestKarmadaGetsOneVersionOfEachKindThatItDelivers"},
		{`outrigger fleet `, "TestSpec12_AFleetRollsOutStageByStage"},
		{`outrigger ui`, "TestSpec8_9_PagesShowTheWordsOfThePlugin"},
		{`curl --cacert ca.crt --header "Authorization: Bearer`, "TestSpec8_9_AnotherAddressThanLoopbackNeedsATokenWithRights"},
		{`outrigger codec-server|temporal workflow show .*--codec-endpoint`, "TestTheTemporalCLIReadsEncryptedRunsThroughTheCodecServer"},
		{`outrigger worker --deployment-name|temporal worker deployment `, "TestVersionsOfWorkers"},
		{`tcld `, "not tested: Temporal Cloud"},
		{`make build && install |go install |kubectl krew `, "not tested: needs a release, or changes the reader's machine"},
	}
}

// placeOf returns the first entry of places that matches a command, or empty strings.
func placeOf(command string) (commands, place string) {
	for _, known := range places() {
		if regexp.MustCompile(`^(` + known.commands + `)`).MatchString(command) {
			return known.commands, known.place
		}
	}
	return "", ""
}

func TestEachCommandOfTheDocumentsHasATest(t *testing.T) {
	tests := testNames(t)
	used := map[string]bool{}
	for _, document := range documents(t) {
		name, err := filepath.Rel(root, document)
		require.NoError(t, err)
		// The Chinese pages have the same commands as the English pages.
		if strings.HasPrefix(name, "docs/decisions/") || strings.HasPrefix(name, "docs/zh/") || slices.Contains(guides(), name) {
			continue
		}
		for _, step := range commandsOf(t, document) {
			commands, place := placeOf(step.command)
			used[commands] = true
			assert.True(t, place != "" || slices.Contains(manuals(), name), "%s:%d: no test runs: %s", name, step.line, step.command)
			if strings.HasPrefix(place, "Test") {
				assert.Contains(t, tests, place, "%s:%d", name, step.line)
			}
		}
	}
	for _, known := range places() {
		assert.True(t, used[known.commands], "no document has %s", known.commands)
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, declaration := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declaration.FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	return names
}

func TestCommandsOfManualsWork(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	stack := start(t)
	// The commands create Secrets from files in this directory.
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "api-key"), []byte("key"), 0o600))
	run := func(command string) {
		t.Helper()
		command = strings.ReplaceAll(command, "temporal-frontend.temporal:7233", stack.TemporalAddress)
		out, err := typed(t, stack, folder, command)
		require.NoError(t, err, "$ %s\n%s", command, out)
	}
	project, err := filepath.Abs(root)
	require.NoError(t, err)
	run("kubectl apply -f " + project + "/examples/quick-start/sidecarset.yaml")
	run("kubectl wait sidecarset/logs --for=jsonpath='{.status.observedGeneration}'=1 --timeout=1m")
	run("kubectl apply -f " + project + "/test/documents/testdata/web.yaml")
	run("kubectl rollout status statefulset/web --timeout=1m")
	for _, manual := range manuals() {
		tried := 0
		for _, step := range commandsOf(t, filepath.Join(root, manual)) {
			if _, elsewhere := placeOf(step.command); elsewhere != "" {
				continue
			}
			tried++
			t.Logf("%s:%d: %s", manual, step.line, step.command)
			run(step.command)
		}
		assert.Positive(t, tried, manual)
	}
}
