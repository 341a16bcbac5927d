package gate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"text/template"
	tree "text/template/parse"

	"github.com/google/cel-go/cel"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// Query contains the fields for the template of a Prometheus query.
type Query struct {
	SidecarSet string
	Revision   string
	Generation int64
	Step       string
}

var errNoBool = errors.New("the result is not true or false")

// maxCost limits the CEL cost of one evaluation, so that an expression cannot occupy a worker.
const maxCost = 100_000

// Problem is an invalid field of a gate.
type Problem struct {
	// Field is the path of the field within the gate.
	Field, Value string
	Err          error
	// Remedy is the instruction to the user, such as "correct the query".
	Remedy string
}

// Check returns an error about the first expression or template of a gate that is invalid, or nil. policy
// is the name of the policy.
func Check(policy string, gate *outriggerv1.RolloutGate) error {
	if found := Problems(gate); len(found) > 0 {
		return fmt.Errorf("RolloutPolicy %s: gate %s: %s %q: %w; %s", policy, gate.Name, found[0].Field, found[0].Value, found[0].Err, found[0].Remedy)
	}
	return nil
}

// Problems returns the invalid expressions and templates of a gate.
func Problems(gate *outriggerv1.RolloutGate) (found []Problem) {
	if gate.Prometheus == nil {
		return nil
	}
	if _, err := Render(gate.Prometheus.Query, Query{SidecarSet: "a", Revision: "b", Step: "c"}); err != nil {
		found = append(found, Problem{"prometheus.query", gate.Prometheus.Query, err, "correct the query"})
	}
	for _, field := range []struct{ name, expression string }{{"success", gate.Prometheus.Success}, {"failure", gate.Prometheus.Failure}} {
		if field.expression == "" {
			continue
		}
		if _, err := compile(field.expression); err != nil {
			found = append(found, Problem{"prometheus." + field.name, field.expression, err, "correct the expression"})
		}
	}
	return found
}

// Render executes the template query with fields. Render rejects a template that could use too much memory or
// time.
func Render(query string, fields Query) (string, error) {
	parsed, err := template.New("query").Option("missingkey=error").Parse(query)
	if err != nil {
		return "", err
	}
	if err := bounded(parsed.Root); err != nil {
		return "", err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, fields)
	return text.String(), err
}

// errUnbounded is the error for a template that could use too much memory or time.
var errUnbounded = errors.New("a template may contain text, fields such as {{.Step}}, and if; a field may be the input of one function; loops, variables, nested templates, with and formats with a width are rejected")

// sized matches a formatting verb with a width, a precision or an index.
var sized = regexp.MustCompile(`%[+\-# .0-9*\[\]]*[1-9*\[]`)

// bounded rejects a template that can execute a node more than once. bounded also rejects a function whose input
// is the result of another function, unless this input is a comparison. A loop, or a chain of functions that quote
// their input, could exhaust the memory of the webhook or of the worker.
func bounded(nodes *tree.ListNode) error {
	if nodes == nil {
		return nil
	}
	for _, node := range nodes.Nodes {
		err := error(nil)
		switch node := node.(type) {
		case *tree.TextNode, *tree.CommentNode:
		case *tree.ActionNode:
			err = boundedPipe(node.Pipe)
		case *tree.IfNode:
			err = cmp.Or(boundedPipe(node.Pipe), bounded(node.List), bounded(node.ElseList))
		default:
			err = errUnbounded
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func boundedPipe(pipe *tree.PipeNode) error {
	if len(pipe.Decl) > 0 || len(pipe.Cmds) > 2 || len(pipe.Cmds) == 2 && !isField(pipe.Cmds[0]) {
		return errUnbounded
	}
	for _, command := range pipe.Cmds {
		for _, argument := range command.Args {
			if err := boundedArgument(argument); err != nil {
				return err
			}
		}
	}
	return nil
}

func isField(command *tree.CommandNode) bool {
	return len(command.Args) == 1 && command.Args[0].Type() == tree.NodeField
}

// boundedArgument returns an error for an argument that can be longer than the template and the fields. The
// result of a function can be longer, unless the function is a comparison. A format with a width, a precision
// or an index can also be longer.
func boundedArgument(argument tree.Node) error {
	switch argument := argument.(type) {
	case *tree.PipeNode:
		if compares(argument) {
			return boundedPipe(argument)
		}
		return errUnbounded
	case *tree.ChainNode:
		return errUnbounded
	case *tree.StringNode:
		if sized.MatchString(argument.Text) {
			return errUnbounded
		}
	}
	return nil
}

func compares(pipe *tree.PipeNode) bool {
	if len(pipe.Cmds) != 1 {
		return false
	}
	function, ok := pipe.Cmds[0].Args[0].(*tree.IdentifierNode)
	return ok && slices.Contains([]string{"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}, function.Ident)
}

func compile(expression string) (cel.Program, error) {
	// Without comparisons across types, value > 0 would be invalid, because value is a double and 0 is an int.
	env, err := cel.NewEnv(cel.CrossTypeNumericComparisons(true),
		cel.Variable("value", cel.DoubleType), cel.Variable("previous", cel.DoubleType), cel.Variable("pods", cel.IntType))
	if err != nil {
		return nil, fmt.Errorf("declare the variables: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, errNoBool
	}
	return env.Program(ast, cel.CostLimit(maxCost))
}

// Judge returns the measurement of a value. previous is the text of the previous value, or "". pods is the
// variable pods of the expressions. The measurement is inconclusive if the value is NaN or infinite, or if an
// expression has no result, as in a comparison with NaN.
func Judge(gate *outriggerv1.PrometheusGate, value float64, previous string, pods int) protocol.Measurement {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return inconclusive("", "the value is "+Format(value))
	}
	text := Format(value)
	variables := map[string]any{"value": value, "previous": parse(previous), "pods": int64(pods)}
	success, err := evaluate(gate.Success, variables)
	if err != nil {
		return inconclusive(text, "success: "+err.Error())
	}
	failure := !success
	if gate.Failure != "" {
		if failure, err = evaluate(gate.Failure, variables); err != nil {
			return inconclusive(text, "failure: "+err.Error())
		}
	}
	switch {
	case success && failure:
		return inconclusive(text, "both success and failure are true")
	case success:
		return protocol.Measurement{Value: text, Phase: protocol.GateSuccess}
	case failure:
		return protocol.Measurement{Value: text, Phase: protocol.GateFailure}
	}
	return inconclusive(text, "neither success nor failure is true")
}

func inconclusive(value, message string) protocol.Measurement {
	return protocol.Measurement{Value: value, Phase: protocol.GateInconclusive, Message: message}
}

func evaluate(expression string, variables map[string]any) (bool, error) {
	program, err := compile(expression)
	if err != nil {
		return false, err
	}
	result, _, err := program.Eval(variables)
	if err != nil {
		return false, err
	}
	answer, ok := result.Value().(bool)
	if !ok {
		return false, errNoBool
	}
	return answer, nil
}
