package operator

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/watches"
)

// injectionStep finds pods that match a SidecarSet but were not injected. injectionStep also determines
// whether new pods are injected.
type injectionStep struct {
	client     client.Reader
	pods       *watches.Pods
	webhook    *podWebhook
	probe      *webhookProbe
	cache      *uninjectedCache
	uninjected *prometheus.GaugeVec
	missing    missingNamespaces
}

func (s *injectionStep) reconcile(ctx context.Context, p *pass) error {
	if p.invalid == nil {
		p.uninjected, p.invalid = s.find(ctx, p.set)
		if err := s.missing.ignore(p); err != nil {
			return err
		}
		if !p.set.Spec.InjectionStrategy.Paused {
			p.webhookFault = s.probe.unavailable(p.set)
		}
		s.uninjected.WithLabelValues(p.set.Name).Set(float64(p.uninjected.count))
	}
	return nil
}

func (s *injectionStep) forget(name string) {
	s.cache.forget(name)
	s.missing.Delete(name)
	s.uninjected.DeleteLabelValues(name)
}

func (s *injectionStep) find(ctx context.Context, set *v1alpha1.SidecarSet) (uninjectedPods, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil || set.Spec.InjectionStrategy.Paused {
		return uninjectedPods{}, err
	}
	return s.cache.find(set, s.webhook.selection(ctx), func() (uninjectedPods, error) { return s.scan(ctx, set, scope) })
}

// scan counts the pods that the SidecarSet selects, that are not injected, and for which the API
// server calls the webhook.
func (s *injectionStep) scan(ctx context.Context, set *v1alpha1.SidecarSet, scope match.Scope) (uninjectedPods, error) {
	var found uninjectedPods
	pods, err := s.pods.In(scope.OneNamespace())
	if err != nil {
		return found, err
	}
	uninjected, err := rollout.Uninjected(set, pods, s.webhook.called(ctx), kube.NamespaceLabels(ctx, s.client))
	found.count = len(uninjected)
	for _, pod := range uninjected {
		if name := pod.Namespace + "/" + pod.Name; found.example == "" || name < found.example {
			found.example = name
		}
	}
	return found, err
}

// uninjectedCache caches the result of the scan for each SidecarSet. An entry becomes outdated
// after an event about the namespaces, or about a pod that the SidecarSet selects but that is not
// injected. Other events cause no scan of all pods.
type uninjectedCache struct {
	mu   sync.Mutex
	sets map[string]*cachedUninjected
}

type cachedUninjected struct {
	uid        types.UID
	generation int64
	found      uninjectedPods
	// selection is the result of podWebhook.selection at the last scan.
	selection int
	// events counts the events so far. scanned is the number of events at the start of the last scan. The
	// result of the scan is outdated if the numbers differ.
	events, scanned int
}

func newUninjectedCache() *uninjectedCache {
	return &uninjectedCache{sets: map[string]*cachedUninjected{}}
}

func (c *uninjectedCache) invalidate(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(set).events++
}

func (c *uninjectedCache) forget(set string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sets, set)
}

func (c *uninjectedCache) of(set string) *cachedUninjected {
	if c.sets[set] == nil {
		c.sets[set] = &cachedUninjected{events: 1} // no scan has happened yet
	}
	return c.sets[set]
}

// find returns the cached result, or calls scan if the result is outdated.
func (c *uninjectedCache) find(set *v1alpha1.SidecarSet, selection int, scan func() (uninjectedPods, error)) (uninjectedPods, error) {
	c.mu.Lock()
	cached := *c.of(set.Name)
	c.mu.Unlock()
	if cached.uid == set.UID && cached.generation == set.Generation && cached.selection == selection && cached.scanned == cached.events {
		return cached.found, nil
	}
	found, err := scan()
	if err != nil {
		return found, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.of(set.Name)
	entry.uid, entry.generation, entry.selection, entry.found, entry.scanned = set.UID, set.Generation, selection, found, cached.events
	return found, nil
}

// webhookInterval is the time between two reads of the webhook configuration. webhookReadTimeout limits
// each read.
const (
	webhookInterval    = time.Minute
	webhookReadTimeout = 2 * time.Second
)

// podWebhook caches the installed webhook of pods. podWebhook reads the webhook configuration without a
// watch, because the operator may have no permission to read the configuration. For example, the permission
// is missing if the image is updated before the ClusterRole.
type podWebhook struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	mu      sync.Mutex
	read    time.Time
	current *admissionregistrationv1.MutatingWebhook
	// selections increases with each change of the selectors of the webhook.
	selections int
}

// selection returns a number that identifies the selectors of the installed webhook.
func (w *podWebhook) selection(ctx context.Context) int {
	w.installed(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.selections
}

// installed returns the webhook. The last read is at most webhookInterval old. If the last read failed,
// installed returns the result of the last successful read. installed returns nil if no webhook is
// installed, or if no read has succeeded.
func (w *podWebhook) installed(ctx context.Context) *admissionregistrationv1.MutatingWebhook {
	w.mu.Lock()
	current, outdated := w.current, w.read.IsZero() || w.clock.Since(w.read) >= webhookInterval
	w.mu.Unlock()
	if outdated {
		return w.reread(ctx)
	}
	return current
}

// reread reads the configuration again, and returns the installed webhook. If the read fails, reread
// returns the result of the last successful read.
func (w *podWebhook) reread(ctx context.Context) *admissionregistrationv1.MutatingWebhook {
	ctx, cancel := context.WithTimeout(ctx, webhookReadTimeout)
	defer cancel()
	installed, err := kube.PodWebhook(ctx, w.live)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = w.clock.Now()
	if err != nil {
		log.FromContext(ctx).V(1).Info("not known which namespaces the webhook of pods leaves out", "cause", err.Error())
		return w.current
	}
	if !sameSelection(w.current, installed) {
		w.selections++
	}
	w.current = installed
	return installed
}

// sameSelection reports whether two webhooks have the same rules and selectors. sameSelection ignores match
// conditions, because match conditions are derived from the SidecarSets and do not affect the counts.
func sameSelection(a, b *admissionregistrationv1.MutatingWebhook) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equality.Semantic.DeepEqual([]any{a.Rules, a.NamespaceSelector, a.ObjectSelector}, []any{b.Rules, b.NamespaceSelector, b.ObjectSelector})
}

// called returns the match.Webhook that determines for which pods the API server calls the webhook. Without a
// webhook configuration, the match.Webhook excludes only the namespaces that every installation excludes.
func (w *podWebhook) called(ctx context.Context) match.Webhook {
	return match.NewWebhook(w.installed(ctx), w.namespace)
}
