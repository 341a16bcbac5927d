package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm writes a question to out, and reports whether the next line of in is "yes". If in is empty, Confirm
// returns false and no error.
func Confirm(in io.Reader, out io.Writer, question string) (bool, error) {
	_, _ = fmt.Fprint(out, question+" (yes or no) ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}
