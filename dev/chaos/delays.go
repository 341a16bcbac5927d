package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// measureAgain is the time between two measurements of the delay of the API server.
	measureAgain = 250 * time.Millisecond
	// slowWrite is the time after which a write counts as delayed.
	slowWrite = time.Second
)

// watchDelays writes a ConfigMap at regular intervals. While a write is delayed, watchDelays notifies the
// observer that writes of pods may also arrive late. On an overloaded machine, a request may take longer than
// the default limit of the observer.
func (w *fixture) watchDelays(ctx context.Context) {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "delays"}}
	for ctx.Err() == nil {
		written := make(chan struct{})
		go func() {
			defer close(written)
			patch := client.RawPatch(client.Merge.Type(), []byte(`{"data":{"at":"`+time.Now().Format(time.RFC3339Nano)+`"}}`))
			if err := w.Kube.Patch(ctx, probe, patch); err != nil {
				_ = w.Kube.Create(ctx, probe.DeepCopy()) // If the API server is unavailable, the next measurement retries.
			}
		}()
		select {
		case <-written:
		case <-time.After(slowWrite):
			over := w.observer.Late()
			<-written
			over()
		}
		select {
		case <-time.After(measureAgain):
		case <-ctx.Done():
		}
	}
}
