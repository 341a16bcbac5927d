package operator

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// pollersTTL is how long one answer about a task queue serves all sets.
const pollersTTL = 3 * time.Second

// queues caches the pollers of task queues.
type queues map[queueKey]queuePollers

type queueKey struct {
	name string
	kind enums.TaskQueueType
}

type queuePollers struct {
	at      time.Time
	pollers []*taskqueue.PollerInfo
}

// pollers returns the workers that polled a task queue in the last minutes, as Temporal
// remembers them.
func (c *rolloutClient) pollers(ctx context.Context, queue string, kind enums.TaskQueueType) ([]*taskqueue.PollerInfo, error) {
	key := queueKey{queue, kind}
	c.mu.Lock()
	known, ok := c.queues[key]
	c.mu.Unlock()
	if ok && c.clock.Since(known.at) < pollersTTL {
		return known.pollers, nil
	}
	var answer *workflowservice.DescribeTaskQueueResponse
	err := c.call(ctx, "DescribeTaskQueue", func(short context.Context) (err error) {
		answer, err = c.client.WorkflowService().DescribeTaskQueue(short, &workflowservice.DescribeTaskQueueRequest{
			Namespace: c.namespace, TaskQueue: &taskqueue.TaskQueue{Name: queue, Kind: enums.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the pollers of task queue %s: %w", queue, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = queues{}
	}
	c.queues[key] = queuePollers{c.clock.Now(), answer.GetPollers()}
	return answer.GetPollers(), nil
}
