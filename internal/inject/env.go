package inject

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

var (
	// keyedField matches the field path of a label or an annotation of the pod.
	keyedField = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)
	// reference matches $(NAME), and also $$, which escapes a dollar sign.
	reference = regexp.MustCompile(`\$\$|\$\(([^()$]+)\)`)
)

const nameField = "metadata.name"

// SupportedSourceField reports whether transferEnv can read the name of a container from a field path of the
// pod (SPEC §1).
func SupportedSourceField(fieldPath string) bool {
	return fieldPath == nameField || keyedField.MatchString(fieldPath)
}

// appVariable is a variable of an app container that can be copied to a sidecar.
type appVariable struct {
	corev1.EnvVar
	// of is the app container, and index is the position of the variable in env of this container.
	of    *corev1.Container
	index int
}

// variableOf returns a variable of an app container. A resourceFieldRef without a container name refers to
// the container that has the variable, so variableOf sets the name of the app container.
func variableOf(of *corev1.Container, index int) appVariable {
	variable := of.Env[index]
	if from := variable.ValueFrom; from != nil && from.ResourceFieldRef != nil && from.ResourceFieldRef.ContainerName == "" {
		variable.ValueFrom = from.DeepCopy()
		variable.ValueFrom.ResourceFieldRef.ContainerName = of.Name
	}
	return appVariable{variable, of, index}
}

// transferred returns the variables of app containers that transferEnv of a sidecar names. Missing containers
// and variables are skipped (SPEC §4.6).
func (a app) transferred(wanted []v1alpha1.TransferEnvVar) []appVariable {
	var found []appVariable
	for i := range wanted {
		source := a.container(a.sourceName(&wanted[i]))
		if source == nil {
			continue
		}
		for _, name := range wantedNames(&wanted[i]) {
			if index := envIndex(source.Env, name); index >= 0 {
				found = append(found, variableOf(source, index))
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

// references finds the variables of an app container that expressions reference as $(NAME).
type references struct {
	of *corev1.Container
	// positions contains the positions of the variables of each name. found contains the positions of the
	// variables that referencedBy returned.
	positions map[string][]int
	found     map[int]bool
	// lacks caches the results of missing for the values of variables, by position.
	lacks map[int]lack
	// given contains the variables that are copied to the sidecar.
	given given
}

// referencedBy returns the variables that an expression references, and the variables that the values of these
// variables reference. Each variable comes after the variables that its value references, because the kubelet
// expands a value only with earlier variables. referencedBy omits variables that an earlier call returned, and
// variables in own, which the sidecar defines itself.
func (r *references) referencedBy(expression string, own map[string]bool) (variables []appVariable) {
	if expression == "" {
		return nil
	}
	r.index()
	var visit func(value string, before int)
	visit = func(value string, before int) {
		for _, match := range reference.FindAllStringSubmatch(value, -1) {
			earlier, _ := slices.BinarySearch(r.positions[match[1]], before)
			if match[1] == "" || earlier == 0 || own[match[1]] {
				continue
			}
			if index := r.positions[match[1]][earlier-1]; !r.found[index] {
				r.found[index] = true
				visit(r.of.Env[index].Value, index)
				variables = append(variables, variableOf(r.of, index))
			}
		}
	}
	visit(expression, len(r.of.Env))
	return variables
}

// lack is a variable that cannot be copied to the sidecar. differs is set if another value of the variable is
// copied, from another app container or by transferEnv.
type lack struct {
	name    string
	differs bool
}

func (l lack) String() string {
	if l.differs {
		return "the sidecar gets another value of variable " + l.name + " of the subPathExpr"
	}
	return "variable " + l.name + " of the subPathExpr is not in env of the container"
}

// missing returns a variable that an expression needs, but that cannot be copied to the sidecar. There are
// three cases:
//   - Neither env of the app container nor known contains a variable of the expression. The kubelet does not
//     start a container if a variable in a subPathExpr is missing.
//   - The value of another variable references a variable that only envFrom of the app container can define.
//     Without the referenced variable, the kubelet would mount a directory with the literal name $(NAME).
//   - Another value of the variable is copied to the sidecar.
//
// own contains the variables that the sidecar defines itself. missing ignores these variables, because their
// values take precedence.
func (r *references) missing(expression string, own, known map[string]bool) lack {
	if expression == "" {
		return lack{}
	}
	r.index()
	if r.lacks == nil {
		r.lacks = map[int]lack{}
	}
	return r.missingBefore(expression, len(r.of.Env), own, known)
}

// forgetDefinedTwice drops the cached results of missing if the app container defines one of the variables more
// than once. After one of the definitions is copied to the sidecar, the other definitions differ from the
// copied definition.
func (r *references) forgetDefinedTwice(variables []appVariable) {
	if slices.ContainsFunc(variables, func(variable appVariable) bool { return len(r.positions[variable.Name]) > 1 }) {
		r.lacks = nil
	}
}

// missingBefore applies missing to a value that the kubelet expands with the variables before a position.
func (r *references) missingBefore(value string, before int, own, known map[string]bool) lack {
	var first lack
	for _, match := range reference.FindAllStringSubmatch(value, -1) {
		if name := match[1]; name != "" && !own[name] {
			found := r.missingVariable(name, before, own, known)
			if found.differs {
				return found // An envFrom of the sidecar cannot replace a variable of env.
			}
			first = cmp.Or(first, found)
		}
	}
	return first
}

// missingVariable applies missing to a variable in a value that the kubelet expands with the variables before
// a position.
func (r *references) missingVariable(name string, before int, own, known map[string]bool) lack {
	earlier, _ := slices.BinarySearch(r.positions[name], before)
	if earlier == 0 {
		inValue := before < len(r.of.Env)
		if !known[name] && (!inValue || len(r.of.EnvFrom) > 0) {
			return lack{name: name}
		}
		return lack{}
	}
	index := r.positions[name][earlier-1]
	if r.given.differs(variableOf(r.of, index)) {
		return lack{name: name, differs: true}
	}
	lacks, visited := r.lacks[index]
	if !visited {
		lacks = r.missingBefore(r.of.Env[index].Value, index, own, known)
		r.lacks[index] = lacks
	}
	return lacks
}

// given contains the variables that are copied to a sidecar, by name. If several variables have the same name,
// the first variable is copied.
type given map[string]corev1.EnvVar

func givenBy(variables []appVariable) given {
	g := make(given, len(variables))
	g.add(variables)
	return g
}

func (g given) add(variables []appVariable) {
	for _, variable := range variables {
		if _, known := g[variable.Name]; !known {
			g[variable.Name] = variable.EnvVar
		}
	}
}

// differs reports whether another variable with the same name is copied to the sidecar.
func (g given) differs(variable appVariable) bool {
	other, known := g[variable.Name]
	return known && !equality.Semantic.DeepEqual(other, variable.EnvVar)
}

func (r *references) index() {
	if r.positions != nil {
		return
	}
	r.positions, r.found = make(map[string][]int, len(r.of.Env)), map[int]bool{}
	for index := range r.of.Env {
		r.positions[r.of.Env[index].Name] = append(r.positions[r.of.Env[index].Name], index)
	}
}

// variableNames returns the names of the variables in env of a container and in more.
func variableNames(of *corev1.Container, more []appVariable) map[string]bool {
	names := make(map[string]bool, len(of.Env)+len(more))
	for i := range of.Env {
		names[of.Env[i].Name] = true
	}
	for i := range more {
		names[more[i].Name] = true
	}
	return names
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

// addMissingEnv returns env followed by the variables of more whose names do not exist in env. If several
// variables of more have the same name, only the first variable is added. addMissingEnv does not change env.
func addMissingEnv(env []corev1.EnvVar, more []appVariable) []corev1.EnvVar {
	var missing []appVariable
	known := make(map[string]bool, len(env)+len(more))
	for i := range env {
		known[env[i].Name] = true
	}
	for _, variable := range more {
		if !known[variable.Name] {
			known[variable.Name] = true
			missing = append(missing, variable)
		}
	}
	env = slices.Grow(slices.Clip(env), len(missing))
	for _, variable := range inReferenceOrder(missing) {
		env = append(env, variable.EnvVar)
	}
	return env
}

// inReferenceOrder returns variables in their order, except that each variable comes after the variables that
// its value references, if the app container defines these variables earlier. Otherwise, the kubelet would not
// expand the value in the sidecar (SPEC §4.6). The names of the variables are unique.
func inReferenceOrder(variables []appVariable) []appVariable {
	positions := make(map[string]int, len(variables))
	references := false
	for i := range variables {
		positions[variables[i].Name] = i
		references = references || strings.Contains(variables[i].Value, "$(")
	}
	if !references {
		return variables
	}
	first := firstPositions{}
	ordered, visited := make([]appVariable, 0, len(variables)), make([]bool, len(variables))
	var visit func(at int)
	visit = func(at int) {
		if visited[at] {
			return
		}
		visited[at] = true
		one := &variables[at]
		for _, match := range reference.FindAllStringSubmatch(one.Value, -1) {
			if before, ok := positions[match[1]]; ok && first.of(one.of, match[1]) < one.index {
				visit(before)
			}
		}
		ordered = append(ordered, *one)
	}
	for at := range variables {
		visit(at)
	}
	return ordered
}

// firstPositions contains, for each container, the position of the first variable of each name.
type firstPositions map[*corev1.Container]map[string]int

// of returns the position of the first variable with a name, or the number of variables if the container has no
// such variable.
func (f firstPositions) of(container *corev1.Container, name string) int {
	if f[container] == nil {
		f[container] = make(map[string]int, len(container.Env))
		for index, variable := range slices.Backward(container.Env) {
			f[container][variable.Name] = index
		}
	}
	if index, found := f[container][name]; found {
		return index
	}
	return len(container.Env)
}

// setEnv replaces the last variable with the same name, or appends the variable. setEnv may change env.
func setEnv(env []corev1.EnvVar, variable corev1.EnvVar) []corev1.EnvVar {
	if index := envIndex(env, variable.Name); index >= 0 {
		env[index] = variable
		return env
	}
	return append(env, variable)
}
