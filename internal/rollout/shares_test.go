package rollout

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpec7_5_TheClusterWideLimitIsDividedMaxMinFairly(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int
		claims []Claim
		want   []int
	}{
		"nobody":                             {7, nil, []int{}},
		"enough for all":                     {7, []Claim{{0, 3}, {2, 4}}, []int{3, 4}},
		"as many each":                       {6, []Claim{{0, 9}, {0, 9}, {0, 9}}, []int{2, 2, 2}},
		"the first claims get the remainder": {7, []Claim{{0, 9}, {0, 9}, {0, 9}}, []int{3, 2, 2}},
		"a small claim leaves slots to other claims":     {7, []Claim{{0, 1}, {0, 9}, {0, 9}}, []int{1, 3, 3}},
		"a claim keeps its used slots and gets no more":  {7, []Claim{{5, 9}, {0, 9}, {0, 9}}, []int{5, 1, 1}},
		"a claim without slots":                          {7, []Claim{{4, 0}, {0, 9}}, []int{4, 3}},
		"fewer slots than sets":                          {2, []Claim{{0, 5}, {0, 5}, {0, 5}}, []int{1, 1, 0}},
		"fewer slots than SidecarSets, one slot is used": {2, []Claim{{0, 5}, {1, 5}, {0, 5}}, []int{1, 1, 0}},
		"more is used than allowed":                      {3, []Claim{{4, 5}, {0, 5}}, []int{4, 0}},
		"nothing is wanted":                              {3, []Claim{{0, 0}, {0, 0}}, []int{0, 0}},
		"a free slot next to a large claim":              {4, []Claim{{3, 9}, {0, 9}}, []int{3, 1}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, Shares(c.limit, c.claims)) })
	}
}

// slotBySlot assigns each slot to the claim with the fewest slots among the claims that want more slots.
func slotBySlot(limit int, claims []Claim) []int {
	shares := make([]int, len(claims))
	for i, claim := range claims {
		shares[i] = claim.Used
		limit -= claim.Used
	}
	for ; limit > 0; limit-- {
		next := -1
		for i, claim := range claims {
			if shares[i] < claim.Want && (next < 0 || shares[i] < shares[next]) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		shares[next]++
	}
	return shares
}

func TestSpec7_5_SharesEqualSlotBySlotAssignment(t *testing.T) {
	for seed := range uint64(populations) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit, claims := random.IntN(20), make([]Claim, random.IntN(8))
		used := 0
		for i := range claims {
			claims[i] = Claim{Used: random.IntN(4), Want: random.IntN(12)}
			used += claims[i].Used
		}
		shares := Shares(limit, claims)
		sum, wanting := 0, 0
		for i, share := range shares {
			sum += share
			require.GreaterOrEqual(t, share, claims[i].Used, "seed %d: %v of %d: %v", seed, claims, limit, shares)
			if claims[i].Want > 0 || claims[i].Used > 0 {
				wanting++
			}
		}
		require.LessOrEqual(t, sum, max(limit, used), "seed %d: %v of %d: %v", seed, claims, limit, shares)
		if limit >= wanting && used == 0 {
			for i, share := range shares {
				require.True(t, share > 0 || claims[i].Want == 0, "seed %d: %v of %d: %v", seed, claims, limit, shares)
			}
		}
		require.Equal(t, slotBySlot(limit, claims), shares, "seed %d: %v of %d", seed, claims, limit)
	}
}
