package inject

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

var (
	// keyedField matches the field path of a label or an annotation of the pod.
	keyedField = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)
	// reference matches $(NAME), and also $$, which escapes a dollar sign.
	reference = regexp.MustCompile(`\$\$|\$\(([^()$]+)\)`)
)

const nameField = "metadata.name"

// SupportedSourceField reports whether transferEnv can read the name of a container from a
// field path of the pod (SPEC §1).
func SupportedSourceField(fieldPath string) bool {
	return fieldPath == nameField || keyedField.MatchString(fieldPath)
}

// transferred returns the variables of app containers that a sidecar requests. Missing
// containers and variables are skipped (SPEC §4.6).
func (a app) transferred(wanted []v1alpha1.TransferEnvVar) []corev1.EnvVar {
	var found []corev1.EnvVar
	for i := range wanted {
		source := a.container(a.sourceName(&wanted[i]))
		if source == nil {
			continue
		}
		for _, name := range wantedNames(&wanted[i]) {
			if index := envIndex(source.Env, name); index >= 0 {
				found = append(found, source.Env[index])
			}
		}
	}
	return found
}

func wantedNames(wanted *v1alpha1.TransferEnvVar) []string {
	names := slices.Clone(wanted.EnvNames)
	if wanted.EnvName != "" {
		names = append(names, wanted.EnvName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a app) sourceName(wanted *v1alpha1.TransferEnvVar) string {
	if wanted.SourceContainerNameFrom == nil || wanted.SourceContainerNameFrom.FieldRef == nil {
		return wanted.SourceContainerName
	}
	fieldPath := wanted.SourceContainerNameFrom.FieldRef.FieldPath
	if fieldPath == nameField {
		return a.pod.Name
	}
	parts := keyedField.FindStringSubmatch(fieldPath)
	switch {
	case parts == nil:
		return ""
	case parts[1] == "labels":
		return a.pod.Labels[parts[2]]
	}
	return a.pod.Annotations[parts[2]]
}

// referenced returns the variables that an expression references as $(NAME). Each variable comes after the
// variables that the value of the variable references, because the kubelet expands a value only with
// earlier variables.
func referenced(expression string, env []corev1.EnvVar) []corev1.EnvVar {
	if expression == "" {
		return nil
	}
	positions := make(map[string][]int, len(env))
	for index := range env {
		positions[env[index].Name] = append(positions[env[index].Name], index)
	}
	var found []corev1.EnvVar
	visited := map[int]bool{}
	var visit func(value string, before int)
	visit = func(value string, before int) {
		for _, match := range reference.FindAllStringSubmatch(value, -1) {
			earlier, _ := slices.BinarySearch(positions[match[1]], before)
			if match[1] == "" || earlier == 0 {
				continue
			}
			if index := positions[match[1]][earlier-1]; !visited[index] {
				visited[index] = true
				visit(env[index].Value, index)
				found = append(found, env[index])
			}
		}
	}
	visit(expression, len(env))
	return found
}

// envIndex returns the index of the last variable with a name, or -1. The kubelet uses the last variable.
func envIndex(env []corev1.EnvVar, name string) int {
	for index, variable := range slices.Backward(env) {
		if variable.Name == name {
			return index
		}
	}
	return -1
}

// addMissingEnv appends the variables of more whose names do not exist in env.
func addMissingEnv(env, more []corev1.EnvVar) []corev1.EnvVar {
	env = slices.Grow(env, len(more))
	for _, variable := range more {
		if envIndex(env, variable.Name) < 0 {
			env = append(env, variable)
		}
	}
	return env
}

// setEnv replaces the last variable with the same name, or appends the variable. setEnv may change env.
func setEnv(env []corev1.EnvVar, variable corev1.EnvVar) []corev1.EnvVar {
	if index := envIndex(env, variable.Name); index >= 0 {
		env[index] = variable
		return env
	}
	return append(env, variable)
}
