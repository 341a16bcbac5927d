// The program definition completes the CRD that controller-gen writes. The schema then describes
// every field, and rejects no stored SidecarSet. The program also writes the reference of the
// fields.
package main

import (
	"flag"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	crd := flag.String("crd", "config/crd/bases/apps.kruise.io_sidecarsets.yaml", "definition that controller-gen wrote, to be finished in place")
	reference := flag.String("reference", "docs/reference.md", "where to write the reference")
	flag.Parse()
	if err := run(*crd, *reference); err != nil {
		fmt.Fprintln(os.Stderr, "definition:", err)
		os.Exit(1)
	}
}

func run(path, reference string) error {
	definition, err := read(path)
	if err != nil {
		return err
	}
	for i := range definition.Spec.Versions {
		relax(specOf(&definition.Spec.Versions[i]))
	}
	written, err := encode(definition)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, written, 0o644); err != nil {
		return err
	}
	return os.WriteFile(reference, []byte(describe(definition)), 0o644)
}

func read(path string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return definition, nil
}

func specOf(version *apiextensionsv1.CustomResourceDefinitionVersion) apiextensionsv1.JSONSchemaProps {
	return version.Schema.OpenAPIV3Schema.Properties["spec"]
}

// encode returns the definition as YAML. It omits the status, because the API server writes the
// status.
func encode(definition *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	text, err := yaml.Marshal(definition)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	text, err = yaml.Marshal(object)
	return append([]byte("---\n"), text...), err
}
