package rollout

import "sort"

// Claim is the claim of one SidecarSet on the slots of the cluster-wide limit: the slots
// that it uses, and the slots that it wants. It keeps the slots that it uses, whatever the
// limit.
type Claim struct {
	Used, Want int
}

func (c Claim) most() int { return max(c.Used, c.Want) }

// at is the share of the claim when no SidecarSet gets more than the level, unless it uses
// more already.
func (c Claim) at(level int) int { return max(c.Used, min(c.Want, level)) }

// Shares divides the limit among the claims by max-min fairness: a claim gets a slot only
// if no claim with fewer slots wants it. The rest goes to the first claims in order. Only
// slots that are in use can exceed the limit.
func Shares(limit int, claims []Claim) []int {
	most, used := 0, 0
	for _, claim := range claims {
		most, used = max(most, claim.most()), used+claim.Used
	}
	limit = max(limit, used)
	// level is the highest level within the limit.
	level := max(sort.Search(most+1, func(level int) bool { return sumAt(claims, level) > limit })-1, 0)
	left := limit - sumAt(claims, level)
	shares := make([]int, len(claims))
	for i, claim := range claims {
		shares[i] = claim.at(level)
		if left > 0 && claim.at(level+1) > shares[i] {
			shares[i]++
			left--
		}
	}
	return shares
}

func sumAt(claims []Claim, level int) (sum int) {
	for _, claim := range claims {
		sum += claim.at(level)
	}
	return sum
}
