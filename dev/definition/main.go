// The program definition completes the CRDs that controller-gen writes, so that the schemas reject values that
// no client can decode. The schema of SidecarSets describes every field, and accepts every SidecarSet that a
// client can decode. The program also writes the reference of the fields of SidecarSets.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	crds := flag.String("crds", "config/crd/bases", "folder of the definitions that controller-gen wrote, to be finished in place")
	reference := flag.String("reference", "docs/reference.md", "where to write the reference")
	flag.Parse()
	if err := run(*crds, *reference); err != nil {
		fmt.Fprintln(os.Stderr, "definition:", err)
		os.Exit(1)
	}
}

func run(folder, reference string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*_*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		definition, err := read(path)
		if err != nil {
			return err
		}
		complete(definition)
		text, err := encode(definition)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		if definition.Spec.Names.Kind == sidecarSet {
			if err := os.WriteFile(reference, []byte(describe(definition)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// sidecarSet is the kind whose webhook validates stored objects less strictly than new objects.
const sidecarSet = "SidecarSet"

func complete(definition *apiextensionsv1.CustomResourceDefinition) {
	for _, version := range definition.Spec.Versions {
		if definition.Spec.Names.Kind == sidecarSet {
			relax(specOf(&version))
		}
		// With limits for all integers, the definition of SidecarSets is too large for kubectl apply.
		bound(version.Schema.OpenAPIV3Schema, definition.Spec.Names.Kind != sidecarSet)
	}
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

// encode returns the definition as YAML. encode omits the status, because the API server writes the status.
func encode(definition *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	text, err := yaml.Marshal(definition)
	if err != nil {
		return nil, err
	}
	text, _, _ = bytes.Cut(text, []byte("\nstatus:\n"))
	return fmt.Appendf(nil, "---\n%s\n", text), nil
}
