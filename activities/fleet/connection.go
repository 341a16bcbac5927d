package fleet

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.temporal.io/api/enums/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// checkInterval is the time between two checks of a working connection. While the connection fails, Run
	// checks the connection in each iteration.
	checkInterval = 10 * time.Second
	// wakeInterval is the minimum time between two signals to the runs without a permit, because each signal adds
	// events to the histories of the runs. A waiting run requests a new plan after five minutes without a signal.
	wakeInterval = 5 * time.Minute
)

// Connection is the state of the connection of a member to the Temporal Service of its fleet (SPEC §12.9).
type Connection struct {
	connected *prometheus.GaugeVec
	failures  *prometheus.CounterVec

	mu    sync.Mutex
	fault string
}

// NewConnection returns a connection, and registers the metrics of the connection. The gauge has no value
// before the first call.
func NewConnection(registerer prometheus.Registerer) *Connection {
	factory := promauto.With(registerer)
	return &Connection{
		connected: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_fleet_connected",
			Help: "1 while the Temporal of the fleet accepts the calls of the worker, else 0; only in a member of a fleet.",
		}, nil),
		failures: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_fleet_call_failures_total",
			Help: "Reports to the fleet and checks of its connection that failed, by reason (" + strings.Join(temporal.FleetReasons(), ", ") + ").",
		}, []string{"reason"}),
	}
}

// Fault returns the reason why the connection fails, with a remedy. Fault returns an empty string while
// the connection works, and before the first call.
func (c *Connection) Fault() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// record records the result of a call in the metrics and in the fault.
func (c *Connection) record(err error) {
	reason, fault := temporal.ExplainFleet(err)
	connected := 1.0
	if err != nil {
		connected = 0
		c.failures.WithLabelValues(reason).Inc()
	}
	c.connected.WithLabelValues().Set(connected)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// check calls the Temporal Service of the fleet and records the result, unless a report in this iteration of Run
// has failed or the connection worked less than checkInterval ago. Without check, a member whose rollouts have
// all ended would not call the fleet for an hour.
func (r *Reporter) check(ctx context.Context) {
	now := r.Clock.Now()
	if r.failed || r.Connection.Fault() == "" && !r.checkedAt.IsZero() && now.Sub(r.checkedAt) < checkInterval {
		return
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.Fleet.DescribeTaskQueue(calling, protocol.FleetTaskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if ctx.Err() != nil {
		return
	}
	if err == nil && r.Connection.Fault() != "" {
		r.returnedAt = now
	}
	r.checkedAt = now
	r.Connection.record(err)
}

// tell signals the runs without a permit after the fault of the connection has changed, so that the messages of
// the runs show the new state.
func (r *Reporter) tell(ctx context.Context, sets []*v1alpha1.SidecarSet) {
	fault, now := r.Connection.Fault(), r.Clock.Now()
	if fault == r.told || !r.toldAt.IsZero() && now.Sub(r.toldAt) < wakeInterval {
		return
	}
	r.told, r.toldAt = fault, now
	for _, set := range sets {
		if fleet.Permitted(set, nil) {
			continue
		}
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		err := r.Local.SignalWorkflow(calling, protocol.WorkflowID(set.Name, set.UID), "", protocol.GenerationSignal, protocol.GenerationInput{Generation: set.Generation})
		cancel()
		if err != nil {
			r.Log.V(1).Info("cannot wake the run; it plans again within five minutes", "sidecarset", set.Name, "cause", err.Error())
		}
		if temporal.IsUnreachable(err) {
			return // each further call would wait for callTimeout
		}
	}
}
