package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const introduction = "# Fields of a SidecarSet\n\n" +
	"*Written by `make generate` from `api/v1alpha1` and `api/v1beta1`; `kubectl explain sidecarset.spec` says the same.*\n\n" +
	"What the fields do together is in `docs/SPEC.md`: §3 matching, §4 injection, §5 what is refused, §6 revisions, §7 rollouts,\n" +
	"§8 status. The webhook writes the defaults, the schema none. Fields of Kubernetes' own types have the defaults that they have in a pod.\n" +
	"`scs` is short for `sidecarsets`. This is v1alpha1, the version that is stored; what v1beta1 says otherwise is at the end.\n"

// part is a table of the reference: the fields under a path.
type part struct {
	title, path string
	// own limits it to the fields that Kubernetes' type does not have, others to
	// those that it has, which Kubernetes documents further.
	own, others bool
}

func parts() []part {
	return []part{
		{title: "spec", path: "spec"},
		{title: "spec.containers[] and spec.initContainers[]: fields of SidecarSets", path: "spec.containers", own: true},
		{title: "spec.containers[] and spec.initContainers[]: fields of Kubernetes", path: "spec.containers", others: true},
		{title: "spec.volumes[]: fields of Kubernetes", path: "spec.volumes", others: true},
		{title: "status", path: "status"},
	}
}

// describe is the reference in Markdown.
func describe(definition *apiextensionsv1.CustomResourceDefinition) string {
	var text strings.Builder
	text.WriteString(introduction)
	versions := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, version := range definition.Spec.Versions {
		versions[version.Name] = *version.Schema.OpenAPIV3Schema
	}
	stored := versions["v1alpha1"]
	for _, p := range parts() {
		writeTable(&text, p.title, p.rows(stored))
	}
	writeTable(&text, "v1beta1: spec, where it differs", differences(versions["v1beta1"].Properties["spec"], stored.Properties["spec"]))
	text.WriteString("\n## Columns\n\n`kubectl get sidecarsets`; those in italics with `-o wide`.\n\n| column | shows | meaning |\n|---|---|---|\n")
	for _, column := range definition.Spec.Versions[0].AdditionalPrinterColumns {
		name := column.Name
		if column.Priority > 0 {
			name = "*" + name + "*"
		}
		fmt.Fprintf(&text, "| %s | `%s` | %s |\n", name, column.JSONPath, cell(column.Description))
	}
	return text.String()
}

func (p part) rows(root apiextensionsv1.JSONSchemaProps) []string {
	value := root
	for name := range strings.SplitSeq(p.path, ".") {
		value = value.Properties[name]
	}
	if !p.own && !p.others {
		return rowsOf(value, "")
	}
	_, list, _ := strings.Cut(p.path, ".")
	var found []string
	for _, name := range slices.Sorted(maps.Keys(value.Items.Schema.Properties)) {
		if hasField(core()[list], name) == p.others {
			field := value.Items.Schema.Properties[name]
			found = append(found, row(name, field))
			if p.own {
				found = append(found, rowsOf(inner(field), name+suffix(field)+".")...)
			}
		}
	}
	return found
}

func writeTable(text *strings.Builder, title string, rows []string) {
	fmt.Fprintf(text, "\n## %s\n\n| field | type | default | meaning |\n|---|---|---|---|\n%s", title, strings.Join(rows, ""))
}

// rowsOf are the fields of a value, and theirs. Those of lists of core are in
// tables of their own, and everybody knows what a selector holds.
func rowsOf(value apiextensionsv1.JSONSchemaProps, prefix string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(value.Properties)) {
		field := value.Properties[name]
		found = append(found, row(prefix+name, field))
		if _, elsewhere := core()[name]; !elsewhere && !isSelector(field) {
			found = append(found, rowsOf(inner(field), prefix+name+suffix(field)+".")...)
		}
	}
	return found
}

// differences are the fields whose descriptions differ.
func differences(value, other apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(value.Properties)) {
		if field := value.Properties[name]; field.Description != other.Properties[name].Description {
			found = append(found, row(name, field))
		}
	}
	return found
}

func inner(value apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	if value.Items != nil {
		return *value.Items.Schema
	}
	return value
}

func suffix(value apiextensionsv1.JSONSchemaProps) string {
	if value.Items != nil {
		return "[]"
	}
	return ""
}

func isSelector(value apiextensionsv1.JSONSchemaProps) bool {
	_, labels := value.Properties["matchLabels"]
	_, expressions := value.Properties["matchExpressions"]
	return labels && expressions
}

func row(name string, value apiextensionsv1.JSONSchemaProps) string {
	meaning, byDefault, _ := strings.Cut(strings.Join(strings.Fields(value.Description), " "), "Default: ")
	if value.XListType != nil && *value.XListType == "map" {
		meaning = fmt.Sprintf("%s Merged by %s.", meaning, strings.Join(value.XListMapKeys, ", "))
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, typeOf(value), cell(strings.TrimSuffix(byDefault, ".")), cell(strings.TrimSpace(meaning)))
}

func typeOf(value apiextensionsv1.JSONSchemaProps) string {
	switch {
	case len(value.Enum) > 0:
		var values []string
		for _, one := range value.Enum {
			values = append(values, "`"+strings.Trim(string(one.Raw), `"`)+"`")
		}
		return strings.Join(values, ", ")
	case value.XIntOrString:
		return "number or string"
	case isSelector(value):
		return "label selector"
	case value.Items != nil:
		return "list of " + typeOf(*value.Items.Schema)
	case value.AdditionalProperties != nil:
		return "map of " + typeOf(*value.AdditionalProperties.Schema)
	default:
		return value.Type
	}
}

// cell is text inside a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}
