package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	content, err := os.ReadFile(monitoring + "rules.yaml")
	require.NoError(t, err)
	var file struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	require.NoError(t, yaml.Unmarshal(content, &file))
	var all []rule
	for _, group := range file.Spec.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// expressions returns the expressions of the alerts and the dashboard, by the name of the alert or the panel.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, rule := range rules(t) {
		all["alert "+rule.Alert] = rule.Expr
	}
	content, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(content, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			all["panel "+panel.Title+" "+target.RefID] = target.Expr
		}
	}
	return all
}

func TestAlertsHaveSummaryAndDescription(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range rules(t) {
		assert.False(t, seen[rule.Alert], "%s is there twice", rule.Alert)
		seen[rule.Alert] = true
		assert.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
	}
}

var (
	selector = regexp.MustCompile(`([a-z]+(?:_[a-z]+)+)\s*(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`^\s*([a-z_]+)\s*(?:=|!=|=~|!~)\s*"[^"]*"\s*$`)
	grouping = regexp.MustCompile(`\bby\s*\(([^)]*)\)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// The page must contain the metrics and labels of each expression, because an alert on a metric that does not
// exist never fires. The test also fails if a bracket is not closed.
func TestExpressionsUseDocumentedMetrics(t *testing.T) {
	known := documented(t)
	for where, expression := range expressions(t) {
		assert.NoError(t, check(expression, known), where)
	}
}

func TestExpressionsWithUnknownSeriesAreErrors(t *testing.T) {
	known := documented(t)
	for _, expression := range []string{
		`max(outrigger_gone) == 0`,
		`max(outrigger_rollouts{set="a"})`,
		`sum by (pod_name) (outrigger_rollouts)`,
		`max(outrigger_rollouts`,
		`max(outrigger_rollouts{phase=Waiting})`,
		`sum(rate(outrigger_rollouts_bucket[5m]))`,
		`1 + 1`,
	} {
		assert.Error(t, check(expression, known), expression)
	}
	assert.NoError(t, check(`sum by (le, pod) (rate(outrigger_batch_duration_seconds_bucket{change="reset"}[5m]))`, known))
}

// documented returns the metrics in the page, with their labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	known := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	for _, found := range row.FindAllStringSubmatch(string(content), -1) {
		var labels []string
		for label := range strings.SplitSeq(found[3], ",") {
			labels = append(labels, strings.Trim(label, " `"))
		}
		// The scrape adds these labels.
		labels = append(labels, "pod", "namespace", "job", "instance", "app_kubernetes_io_component")
		if found[2] != "histogram" {
			known[found[1]] = labels
			continue
		}
		known[found[1]+"_bucket"] = append(labels, "le")
		known[found[1]+"_sum"], known[found[1]+"_count"] = labels, labels
	}
	require.NotEmpty(t, known)
	return known
}

func check(expression string, known map[string][]string) error {
	if err := balanced(quoted.ReplaceAllString(expression, "")); err != nil {
		return err
	}
	var by []string
	for _, found := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			by = append(by, strings.TrimSpace(label))
		}
	}
	asked := 0
	for _, found := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expression, ""), -1) {
		name, matchers := found[1], found[2]
		if name == "histogram_quantile" {
			continue
		}
		labels, ok := known[name]
		if !ok {
			return fmt.Errorf("no metric %s", name)
		}
		asked++
		used := slices.Clone(by)
		if matchers != "" {
			for one := range strings.SplitSeq(matchers, ",") {
				parts := matcher.FindStringSubmatch(one)
				if parts == nil {
					return fmt.Errorf("not a matcher: %s", one)
				}
				used = append(used, parts[1])
			}
		}
		for _, label := range used {
			if !slices.Contains(labels, label) {
				return fmt.Errorf("%s has no label %s", name, label)
			}
		}
	}
	if asked == 0 {
		return errors.New("asks for no metric")
	}
	return nil
}

func balanced(expression string) error {
	var open []rune
	closes := map[rune]rune{')': '(', ']': '[', '}': '{'}
	for _, one := range expression {
		switch one {
		case '(', '[', '{':
			open = append(open, one)
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != closes[one] {
				return fmt.Errorf("%c closes nothing", one)
			}
			open = open[:len(open)-1]
		case '"':
			return errors.New("a quote is not closed")
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%c is not closed", open[len(open)-1])
	}
	return nil
}
