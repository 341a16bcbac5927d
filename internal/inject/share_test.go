package inject

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec11_5_ALargerShareIncludesEveryPodOfASmallerOne(t *testing.T) {
	const pods = 2000
	pod := fixture.Pod()
	pod.Name, pod.GenerateName = "", "web-5d9c-"
	five, quarter := 0, 0
	for i := range pods {
		request := types.UID(fmt.Sprint(i))
		few, more := Share{Part: 5, Of: 100}.Includes(pod, request), Share{Part: 25, Of: 100}.Includes(pod, request)
		assert.Equal(t, few, Share{Part: 5, Of: 100}.Includes(pod.DeepCopy(), request), "a request that is sent again")
		assert.True(t, more || !few)
		assert.True(t, AllPods().Includes(pod, request))
		assert.False(t, Share{}.Includes(pod, request))
		assert.False(t, Share{Part: 0, Of: 100}.Includes(pod, request))
		assert.True(t, Share{Part: 3, Of: 2}.Includes(pod, request))
		if few {
			five++
		}
		if more {
			quarter++
		}
	}
	assert.InDelta(t, 0.05*pods, five, 0.02*pods)
	assert.InDelta(t, 0.25*pods, quarter, 0.04*pods)
}
