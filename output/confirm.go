package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm asks a question, and reports whether the answer is yes. Every other answer, and the end of in,
// count as no.
func Confirm(in io.Reader, out io.Writer, question string) (bool, error) {
	_, _ = fmt.Fprint(out, question+" (yes or no) ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}
