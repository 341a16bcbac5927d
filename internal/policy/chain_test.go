package policy_test

import (
	"fmt"

	"github.com/outrigger/outrigger/internal/policy"
)

func ExampleChain_Decide() {
	negative := func(n int) bool { return n < 0 }
	small := func(n int) bool { return n < 10 }
	sizes := policy.Chain[int, string]{
		{When: negative, Then: "negative"},
		{When: small, Then: "small"},
	}
	fmt.Printf("%q %q %q\n", sizes.Decide(-1), sizes.Decide(1), sizes.Decide(10))
	// Output: "negative" "small" ""
}
