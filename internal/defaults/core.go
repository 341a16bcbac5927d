package defaults

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// defaultContainer writes the defaults of Kubernetes for a container of a pod. defaultContainer omits the
// defaults that PodProbes writes, because OpenKruise computes hashes without these defaults.
func defaultContainer(c *corev1.Container) {
	orDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	if c.Lifecycle == nil {
		return
	}
	for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if hook != nil {
			defaultHTTPGet(hook.HTTPGet)
		}
	}
}

// pullPolicy returns Always for the tag latest, and for an image with neither a tag nor a digest. For all
// other images, pullPolicy returns IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, hasDigest := strings.Cut(image, "@")
	_, tag, hasTag := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !hasTag && !hasDigest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func roundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

func defaultProbe(probe *corev1.Probe) {
	if probe == nil {
		return
	}
	orDefault(&probe.TimeoutSeconds, 1)
	orDefault(&probe.PeriodSeconds, 10)
	orDefault(&probe.SuccessThreshold, 1)
	orDefault(&probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
}

func defaultHTTPGet(action *corev1.HTTPGetAction) {
	if action != nil {
		orDefault(&action.Path, "/")
		orDefault(&action.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		orDefault(&ref.APIVersion, "v1")
	}
}

// Volume writes the defaults of Kubernetes for a volume of a pod.
func Volume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		pointerOrDefault(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		pointerOrDefault(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		pointerOrDefault(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		pointerOrDefault(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
}

func defaultProjected(projected *corev1.ProjectedVolumeSource) {
	const hour = 60 * 60
	pointerOrDefault(&projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, source := range projected.Sources {
		if source.DownwardAPI != nil {
			defaultItems(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			pointerOrDefault(&source.ServiceAccountToken.ExpirationSeconds, hour)
		}
	}
}

func defaultItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

// PodProbes returns a copy of containers with the defaults of startup probes and the default service of gRPC
// probes. Kubernetes writes these defaults into pods, but Write omits these defaults.
func PodProbes(containers []v1alpha1.SidecarContainer) []v1alpha1.SidecarContainer {
	containers = slices.Clone(containers)
	for i := range containers {
		if !HasPodProbes(&containers[i].Container) {
			continue
		}
		containers[i] = *containers[i].DeepCopy()
		defaultProbe(containers[i].StartupProbe)
		for _, probe := range probesOf(&containers[i].Container) {
			if probe != nil && probe.GRPC != nil {
				pointerOrDefault(&probe.GRPC.Service, "")
			}
		}
	}
	return containers
}

// HasPodProbes reports whether PodProbes may change a probe of the container.
func HasPodProbes(c *corev1.Container) bool {
	return c.StartupProbe != nil || slices.ContainsFunc(probesOf(c), func(probe *corev1.Probe) bool {
		return probe != nil && probe.GRPC != nil && probe.GRPC.Service == nil
	})
}

func probesOf(c *corev1.Container) []*corev1.Probe {
	return []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}
}
