// Package output adds the flag --output to commands, writes JSON and YAML, and asks for confirmation.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Flag.Format has one of these values.
const (
	Text = ""
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
)

// Flag is the flag --output.
type Flag struct{ Format string }

// Add adds the flag to a command. The flag accepts the given formats, and an empty value for text.
func (f *Flag) Add(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&f.Format, "output", "o", Text, strings.Join(formats, ", ")+"; empty: text")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if f.Format != Text && !slices.Contains(formats, f.Format) {
			return fmt.Errorf("--output %q: use %s", f.Format, strings.Join(formats, ", "))
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
}

// Structured reports whether the format is JSON or YAML.
func (f Flag) Structured() bool { return f.Format == JSON || f.Format == YAML }

// Write writes a value as JSON or YAML. For other formats, Write returns an error.
func (f Flag) Write(out io.Writer, value any) error {
	var data []byte
	var err error
	switch f.Format {
	case JSON:
		data, err = json.MarshalIndent(value, "", "    ")
		data = append(data, '\n')
	case YAML:
		data, err = yaml.Marshal(value)
	default:
		err = fmt.Errorf("%q is not a structured format", f.Format)
	}
	if err == nil {
		_, err = out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
